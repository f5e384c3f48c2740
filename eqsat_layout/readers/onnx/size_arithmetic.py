"""Arithmetic of an ONNX graph on the sizes of its tensors, done while it is read.

In: a node whose operands are numbers that are known, or made of sizes that are not. Out: its result as such an
expression, so that what is made of it has a shape; None for other nodes, whose sizes become tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import ir, relax, sym, tirx

_INT64: Final = 7
"""ONNX's number of that type."""

MOST: Final = 64
"""Elements: shapes have fewer."""

TAKEN_AS_THEY_ARE: Final = frozenset(
    [
        "Cast",
        "CastLike",
        "Concat",
        "ConstantOfShape",
        "Equal",
        "Expand",
        "Gather",
        "Reshape",
        "Resize",
        "Shape",
        "Slice",
        "Squeeze",
        "Tile",
        "TopK",
        "Where",
    ]
)
"""Ops whose converters know shapes that are no tensors."""

_NUMBERS_TAKEN_AS_THEY_ARE: Final = TAKEN_AS_THEY_ARE - {"Cast", "CastLike", "Equal", "Where"} | {"Range", "Unsqueeze"}
"""Ops whose converters know a size alone, and what it is of."""


def computed(op: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The result of a node on sizes: a shape for a vector, an expression for a number."""
    given = [one for one in inputs if one is not None]
    if op not in _MAKERS or not any(_is_symbolic(one) for one in given):
        return None
    values = [_array(one) for one in given]
    if any(value is None for value in values):
        return None
    made = _MAKERS[op](attributes, *values)
    if made is None or made.ndim > 1 or made.size > MOST:
        return None
    simple = [_simplified(one) for one in made.reshape(-1)]
    return relax.ShapeExpr(simple) if made.ndim else simple[0]


def _as_tensor(builder: relax.BlockBuilder, op: str, value: Any) -> Any:
    """``value`` as ``op`` takes it."""
    is_shape = isinstance(value, ir.Expr) and isinstance(value.ty, relax.ShapeType)
    is_known = op in (TAKEN_AS_THEY_ARE if is_shape else _NUMBERS_TAKEN_AS_THEY_ARE)
    return as_result(builder, value) if not is_known and (is_shape or _is_size(value)) else value


def as_operands(builder: relax.BlockBuilder, op: str, inputs: Any) -> Any:
    """``inputs`` as ``op`` takes them: beside tensors that are known at run time only, ``Concat`` joins tensors."""
    if op == "Concat" and not all(one is None or _is_known(one) for one in inputs):
        return type(inputs)(as_result(builder, one) for one in inputs)
    return type(inputs)(_as_tensor(builder, op, one) for one in inputs)


def as_result(builder: relax.BlockBuilder, value: Any) -> Any:
    """``value`` as a graph gives it: a tensor."""
    if isinstance(value, relax.Tuple):
        return relax.Tuple([as_result(builder, one) for one in value])
    if isinstance(value, ir.Expr) and isinstance(value.ty, relax.ShapeType):
        return builder.emit(relax.op.shape_to_tensor(value))
    if not _is_size(value):
        return value
    vector = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([value])))
    return builder.emit(relax.op.reshape(vector, ()))


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, relax.ShapeExpr) or _is_size(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, ir.Expr) and isinstance(value.ty, ir.PrimType) and str(value.ty) == "int64"


def _is_known(value: Any) -> bool:
    return isinstance(value, relax.ShapeExpr | ir.GenericConst)


def _array(value: Any) -> Any:
    """Expressions in an array of objects; None for what is no vector or number of int64."""
    if isinstance(value, relax.ShapeExpr):
        made = np.empty(len(value.values), object)
        made[:] = list(value.values)
        return made
    if _is_size(value):
        number = np.empty((), object)
        number[()] = value
        return number
    if not isinstance(value, ir.GenericConst) or str(value.ty.dtype) != "int64":
        return None
    numbers = value.value.numpy()
    if numbers.ndim > 1 or numbers.size > MOST:
        return None
    whole = np.empty(numbers.shape, object)
    for at, number in np.ndenumerate(numbers):
        whole[at] = tirx.IntImm("int64", int(number))
    return whole


def _simplified(value: Any) -> Any:
    return sym.Analyzer().simplify(value if isinstance(value, ir.Expr) else tirx.IntImm("int64", int(value)))


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Element by element; None where the operands don't fit."""

    def make(_: dict[str, Any], *values: Any) -> Any:
        try:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        except ValueError:
            return None
        made = np.empty(shape, object)
        spread = [np.broadcast_to(value, shape) for value in values]
        for at in np.ndindex(shape):
            made[at] = function(*(value[at] for value in spread))
        return made

    return make


def _folded(function: Callable[[Any, Any], Any], first: int) -> Callable[..., Any]:
    """Along the only axis."""

    def make(attributes: dict[str, Any], data: Any, axes: Any = None) -> Any:
        if data.ndim != 1:
            return None
        total: Any = tirx.IntImm("int64", first)
        for one in data:
            total = function(total, one)
        made = np.empty((1,) if attributes.get("keepdims", 1) else (), object)
        made[...] = total
        return made

    return make


def _gathered(attributes: dict[str, Any], data: Any, indices: Any) -> Any:
    """Of one axis, at places that are known."""
    at = [int(one) if isinstance(one, tirx.IntImm) else None for one in indices.reshape(-1)]
    if data.ndim != 1 or any(one is None or not -data.size <= one < data.size for one in at):
        return None
    made = np.empty(indices.shape, object)
    made.reshape(-1)[:] = [data[one] for one in at]
    return made


def _quotient(one: Any, other: Any) -> Any:
    """Rounded towards 0, as ONNX divides integers; a difference of sizes may be below 0."""
    return tirx.truncdiv(one, other)


def _longest(*values: Any) -> Any:
    made = values[0]
    for value in values[1:]:
        made = tirx.Max(made, value)
    return made


def _shortest(*values: Any) -> Any:
    made = values[0]
    for value in values[1:]:
        made = tirx.Min(made, value)
    return made


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "Add": _each(lambda one, other: one + other),
    "Sub": _each(lambda one, other: one - other),
    "Mul": _each(lambda one, other: one * other),
    "Div": _each(_quotient),
    "Mod": _each(tirx.floormod),
    "Max": _each(_longest),
    "Min": _each(_shortest),
    "Neg": _each(lambda one: tirx.IntImm("int64", 0) - one),
    "Abs": _each(lambda one: tirx.Max(one, tirx.IntImm("int64", 0) - one)),
    "Gather": _gathered,
    "Identity": _each(lambda one: one),
    "Cast": lambda attributes, one: one if attributes.get("to") == _INT64 else None,
    "ReduceProd": _folded(lambda one, other: one * other, 1),
    "ReduceSum": _folded(lambda one, other: one + other, 0),
}
