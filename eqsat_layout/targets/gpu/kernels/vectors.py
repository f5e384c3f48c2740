"""Which stores of a kernel go by whole vectors, and which loads of images let them.

In: a store whose indices are simplified, and the variable that runs along a vector. Out: whether TVM's VectorizeLoop
makes one vector of it; what it would do element by element is done so from the start.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.tir.structural import nodes_of

LANES: Final = 4
"""Elements of a vector, and of a texel."""

_TYPES: Final = ("float32", "float16", "int32")
_IN_ORDER: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_FUNCTIONS: Final = ("exp", "log", "tanh", "sqrt", "sigmoid", "fabs", "floor", "ceil", "sin", "cos", "pow")
_HIDDEN: Final = tuple(f"eqsat_layout.{kind.__name__}" for kind in _IN_ORDER)


def is_image(buffer: Any) -> bool:
    """It lies in a texture scope."""
    return "texture" in str(buffer.ty.storage_scope)


def as_vector_statement(store: Any, lane: Any) -> bool:
    """The whole statement is one vector operation. TVM makes no texel of a value that is the same in all lanes."""
    if is_image(store.buffer) and not _uses(store.value, lane):
        return False
    return stores_in_vectors(store, lane) and _is_vector(store.value, lane)


def stores_in_vectors(store: Any, lane: Any) -> bool:
    """Neighbouring elements are stored, from the first of a vector on."""
    if str(store.buffer.ty.dtype) not in _TYPES:
        return False
    if is_image(store.buffer):
        return _is_texel(store.indices, lane)
    return StageAccess(store.buffer, tuple(store.indices)).stride(lane) == 1


def _is_texel(indices: Any, lane: Any) -> bool:
    return bool(indices[-1].same_as(lane)) and not any(_uses(index, lane) for index in list(indices)[:-1])


def _is_vector(value: Any, lane: Any) -> bool:
    if not _uses(value, lane):
        return True
    if not isinstance(value, tvm.ir.Expr) or str(value.ty.dtype) not in _TYPES:
        return False
    if isinstance(value, tvm.ir.TensorLoad):
        if is_image(value.source):
            return _is_texel(value.indices, lane)
        return StageAccess(value.source, tuple(value.indices)).stride(lane) is not None
    if isinstance(value, _IN_ORDER):
        return _is_vector(value.a, lane) and _is_vector(value.b, lane)
    if isinstance(value, tvm.ir.Call):
        name = str(getattr(value.op, "name", ""))
        if name == "prim.if_then_else":
            return not _uses(value.args[0], lane) and all(_is_vector(arg, lane) for arg in value.args[1:])
        if name in _HIDDEN or name.rpartition(".")[2] in _FUNCTIONS:
            return all(_is_vector(arg, lane) for arg in value.args)
    return False


def _uses(node: Any, lane: Any) -> bool:
    return any(var.same_as(lane) for var in nodes_of(node, tvm.ir.Var))
