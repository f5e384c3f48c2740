"""Calls of TVM's library of sorts, which kernels make between their stages, on tensors of types that it does not sort.

In: a PrimFunc of blocks. Out: the same, in which a copy of a type that it sorts is given to the library. Most others it
refuses while the program runs; of bfloat16 and of floats of a byte TVM tells it that they are float32, so that it sorts
other numbers and reads beyond them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.tir.blocks import sequence, statements_of, storing_block
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.narrow_floats import NARROW
from eqsat_layout.tir.structural import changed_block, structural_map

SORTED_AS: Final = {
    **dict.fromkeys(NARROW, "float32"),
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "uint32": "int64",
}
"""By dtype: one that holds its numbers, and that the library sorts."""

_OF_BOXES: Final = dict.fromkeys((*NARROW, "float16"), "float32")
"""Scores of boxes are sorted as float32 only."""

_SORTS: Final[Mapping[str, Mapping[str, str]]] = {
    "tvm.contrib.sort.argsort": SORTED_AS,
    "tvm.contrib.sort.argsort_nms": _OF_BOXES,
    "tvm.contrib.sort.sort": SORTED_AS,
    "tvm.contrib.sort.topk": SORTED_AS,
}
"""The functions of the library, and as what each sorts other types."""

_CALL: Final = "tirx.tvm_call_packed"
_ARRAY: Final = "tirx.tvm_stack_make_array"


def with_known_sorts(func: Any) -> Any:
    """See above; ``func`` itself where it sorts nothing of such a type."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    statements: list[Any] = []
    allocated: list[Any] = []
    for statement in statements_of(func):
        copied = _copied(statement)
        copies = {one: tirx.decl_buffer(one.ty.shape, kind, f"{one.name}_sorted") for one, kind in copied}
        statements += [_copy(data, copies[data]) for data, _ in copied[:1]]
        statements.append(_given(statement, copies) if copies else statement)
        statements += [_copy(copies[result], result) for result, _ in copied[1:]]
        allocated += copies.values()
    if not allocated:
        return func
    root = func.body.block
    block = changed_block(root, body=sequence(statements), alloc_buffers=[*root.alloc_buffers, *allocated])
    return func.with_body(s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block))


def _copied(statement: Any) -> list[tuple[Any, str]]:
    """If a statement sorts such a tensor, that one, and then those that it makes: with the types of their copies. One
    that is sorted in its place comes twice."""
    body = statement.block.body if isinstance(statement, s_tir.SBlockRealize) else statement
    call: Any = body.value if isinstance(body, tirx.Evaluate) else None
    known = _SORTS.get(str(getattr(call.args[0], "value", ""))) if is_call(call, _CALL) else None
    if known is None:
        return []
    tensors = [arg.args[0].args[0] for arg in call.args if is_call(arg, _ARRAY)]
    found = [(one, known[str(one.ty.dtype)]) for one in tensors if str(one.ty.dtype) in known]
    return found if found and found[0][0].same_as(tensors[0]) else []


def _given(statement: Any, copies: Mapping[Any, Any]) -> Any:
    def array(call: Any) -> Any:
        if not is_call(call, _ARRAY):
            return call
        copy = copies.get(call.args[0].args[0])
        return call if copy is None else tirx.call_packed("", copy).args[1]

    return structural_map(statement, (tvm.ir.Call, array))


def _copy(source: Any, target: Any) -> Any:
    """A block that stores each element as the other type."""
    axes = [
        tirx.IterVar(tvm.ir.Range(0, extent), tirx.Var(f"v{number}", str(extent.ty.dtype)), tirx.IterVar.DataPar)
        for number, extent in enumerate(source.ty.shape)
    ]
    at = [axis.var for axis in axes]
    value = tirx.Cast(str(target.ty.dtype), tirx.BufferLoad(source, at))
    return storing_block(axes, target.name, tirx.BufferStore(target, value, at))
