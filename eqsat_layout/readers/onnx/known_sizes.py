"""What is known of the values of an ONNX graph that are made of sizes, while it is read.

In: nodes, in their order, with what their operands became in Relax. Out: results of int64 as shapes and expressions, so
that what is made with them has a shape; of other types their values are kept here, for the nodes that read them: sizes
are cast to int32 or to floats, scaled, compared, and cast back.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import ir, relax, sym, tirx

from eqsat_layout.readers.onnx import size_arithmetic, size_moves
from eqsat_layout.readers.onnx.size_arithmetic import Ratio, Sizes, small_constant

_MAKERS: Final = size_arithmetic.MAKERS | size_moves.MAKERS

_DTYPES: Final = ("int64", "int32", "float32", "bool")


_TAKEN_AS_THEY_ARE: Final = frozenset(
    [
        "AffineGrid",
        "Cast",
        "CastLike",
        "Concat",
        "ConstantOfShape",
        "Expand",
        "Gather",
        "OneHot",
        "Pad",
        "Reshape",
        "Resize",
        "Shape",
        "Slice",
        "Squeeze",
        "Tile",
        "TopK",
    ]
)
"""Ops whose converters know shapes that are no tensors."""

_NUMBERS_TAKEN_AS_THEY_ARE: Final = _TAKEN_AS_THEY_ARE - {"Cast", "CastLike", "Gather"} | {"Range"}
"""Ops whose converters know a size alone, and what it is of."""


class KnownSizes:
    """The known sizes of one graph."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, Sizes]] = {}
        """By identity, with the objects, so that no other has it."""

    def computed(self, op: str, inputs: Any, attributes: dict[str, Any]) -> Any:
        """The result of a node on sizes, if it is of int64 and at most a vector: a shape for a vector, an expression
        for a number, and a tuple for several results. Conditions that hold whatever the sizes are, and that never do,
        are constants."""
        values = self._values(op, inputs, attributes)
        if len(values) == 1 and values[0].dtype == "bool" and _are_numbers(values[0].elements):
            return relax.const(np.vectorize(bool, otypes=[bool])(values[0].elements), "bool")
        if not values or any(value.dtype != "int64" or value.elements.ndim > 1 for value in values):
            return None
        made = [_as_relax(value) for value in values]
        return relax.Tuple(made) if op in size_moves.SEVERAL else made[0]

    def keep(self, op: str, inputs: Any, attributes: dict[str, Any], made: Any) -> None:
        """Notes the value of a tensor that was ``made``."""
        if not isinstance(getattr(made, "ty", None), relax.TensorType):
            return
        values = self._values(op, inputs, attributes)
        if len(values) == 1 and values[0].dtype == str(made.ty.dtype):
            self._kept[hash(made)] = (made, values[0])

    def _values(self, op: str, inputs: Any, attributes: dict[str, Any]) -> list[Sizes]:
        """The values of the results; nothing where they are unknown, or contain no sizes."""
        if op == "Size":
            return _count(inputs[0])
        if op not in _MAKERS or not any(self._is_made_of_sizes(one) for one in inputs):
            return []
        values = [None if one is None else self._value(one) for one in inputs]
        if any(value is None and one is not None for value, one in zip(values, inputs, strict=True)):
            return []
        made = _MAKERS[op](attributes, *values)
        return [] if made is None else [_simplified(one) for one in made]

    def _is_made_of_sizes(self, value: Any) -> bool:
        return isinstance(value, relax.ShapeExpr) or _is_size(value) or hash(value) in self._kept

    def _value(self, value: Any) -> Sizes | None:
        """None for what is not known, or large."""
        if isinstance(value, relax.ShapeExpr):
            return Sizes("int64", _objects(list(value.values)))
        if _is_size(value):
            return Sizes("int64", _objects(value))
        if isinstance(value, ir.GenericConst):
            return small_constant(value.value.numpy()) if str(value.ty.dtype) in _DTYPES else None
        kept = self._kept.get(hash(value))
        return kept[1] if kept is not None and kept[0] is value else None


def _as_tensor(builder: relax.BlockBuilder, op: str, value: Any) -> Any:
    """``value`` as ``op`` takes it."""
    is_shape = isinstance(value, ir.Expr) and isinstance(value.ty, relax.ShapeType)
    is_known = op in (_TAKEN_AS_THEY_ARE if is_shape else _NUMBERS_TAKEN_AS_THEY_ARE)
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


def _is_known(value: Any) -> bool:
    return isinstance(value, relax.ShapeExpr | ir.GenericConst)


def _is_size(value: Any) -> bool:
    return isinstance(value, ir.Expr) and isinstance(value.ty, ir.PrimType) and str(value.ty) == "int64"


def _count(data: Any) -> list[Sizes]:
    shape = getattr(getattr(data, "ty", None), "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return []
    total: Any = tirx.IntImm("int64", 1)
    for extent in shape.values:
        total = total * extent
    return [Sizes("int64", _objects(total))]


def _objects(value: Any) -> Any:
    made = np.empty(np.shape(value) if isinstance(value, list) else (), object)
    made[...] = value
    return made


def _as_relax(value: Sizes) -> Any:
    return relax.ShapeExpr(list(value.elements)) if value.elements.ndim else value.elements[()]


def _are_numbers(elements: Any) -> bool:
    return all(isinstance(one, tirx.IntImm) for one in elements.reshape(-1))


def _simplified(value: Sizes) -> Sizes:
    made = np.empty(value.elements.shape, object)
    for at, one in np.ndenumerate(value.elements):
        made[at] = one if isinstance(one, Ratio) else simplified_sizes(one)
    return Sizes(value.dtype, made)


def simplified_sizes(expression: Any) -> Any:
    """An expression of sizes, which are not below 0."""
    analyzer = sym.Analyzer()
    for var in tirx.analysis.undefined_vars(expression):
        analyzer.bind(var, ir.Range.from_min_extent(tirx.IntImm("int64", 0), tirx.IntImm("int64", MOST_ELEMENTS)))
    return analyzer.simplify(expression)


MOST_ELEMENTS: Final = 1 << 40
"""Of a tensor."""
