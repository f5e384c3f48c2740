"""Operands of products, and axes that are counted as one.

In: expressions over axes of nests. Out: what an element is (a load, maybe guarded), and what it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.extents import Extent, assumed, product_of_extents
from eqsat_layout.targets.gpu.kernels.nests import Axis
from eqsat_layout.targets.schedules.accesses import StageAccess, places_of
from eqsat_layout.tir.intrinsics import is_choice, is_zero
from eqsat_layout.tir.structural import nodes_of

SUMS: Final = {
    "float16": ("float32", "float16"),
    "bfloat16": ("float32", "bfloat16"),
    "float32": ("float32",),
    "int8": ("int32",),
    "uint8": ("int32",),
}
"""By the dtype of an operand: those that the sum may have, the first one that it is added up in."""


@dataclass(frozen=True)
class FlatAxes:
    """Axes that are counted as one, the last one fastest."""

    axes: tuple[Axis, ...]

    @property
    def extent(self) -> Extent:
        """Elements of all together."""
        return product_of_extents(axis.extent for axis in self.axes)

    @property
    def last(self) -> Extent:
        """Elements along the last axis."""
        return product_of_extents(axis.extent for axis in self.axes[-1:])

    def at(self, number: Any) -> dict[Any, Any]:
        """The place along every axis of the element of this number."""
        return places_of(self.axes, number)


@dataclass(frozen=True)
class Operand:
    """An expression of an element. ``dtype``: of the expression, before it is made wider to be multiplied."""

    value: Any

    @property
    def dtype(self) -> str:
        return str(self.value.ty.dtype)

    @cached_property
    def guarded(self) -> tuple[Any, Any] | None:
        """A load and the condition under which the element is it, or else zero; ``None`` for other expressions."""
        if isinstance(self.value, tvm.ir.TensorLoad):
            return self.value, tirx.const(True, "bool")
        condition, load, other = choice(self.value) or (None, None, None)
        return (load, condition) if isinstance(load, tvm.ir.TensorLoad) and is_zero(other) else None

    @property
    def elements(self) -> int:
        """Of the largest tensor that is read for it."""
        return max(assumed(product_of_extents(one.source.ty.shape)) for one in nodes_of(self.value, tvm.ir.TensorLoad))

    def uses(self, axis: Axis) -> bool:
        return any(axis.var.same_as(var) for var in nodes_of(self.value, tirx.Var))

    def stride(self, axis: Axis) -> int | None:
        """Elements that its first address moves by along the axis; ``None`` if that is not a constant."""
        load = nodes_of(self.value, tvm.ir.TensorLoad)[0]
        return StageAccess(load.source, tuple(load.indices)).stride(axis.var)


def without_conversions(value: Any) -> Any:
    """Without conversions to the type of sums."""
    while isinstance(value, tirx.Cast) and str(value.ty.dtype) == _sums_of(value.value):
        value = value.value
    found = choice(value)
    if found is not None:
        condition, chosen, other = found
        inner = without_conversions(chosen)
        if not inner.same_as(chosen) and is_zero(other):
            return tirx.if_then_else(condition, inner, tirx.const(0, str(inner.ty.dtype)))
    return value


def choice(value: Any) -> tuple[Any, Any, Any] | None:
    """Condition and both values of an expression that chooses."""
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    if is_choice(value):
        return tuple(value.args)
    return None


def _sums_of(value: Any) -> str | None:
    """The dtype that products of such values are added up in."""
    return SUMS.get(str(value.ty.dtype), (None,))[0]
