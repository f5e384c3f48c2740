"""Axes and accesses of blocks: how far an address moves with an axis.

In: the indices of loads and stores. Out: strides, periods of blocked layouts, and what depends on a variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from eqsat_layout.tir.structural import items_of, nodes_of, substitute


@dataclass(frozen=True)
class StageAxis:
    """An iteration axis of a block. ``extent`` is ``None`` where it is symbolic."""

    var: Any
    extent: int | None
    reduce: bool


@dataclass(frozen=True)
class StageAccess:
    """One load or store of a block: the buffer and its indices."""

    buffer: Any
    indices: tuple[Any, ...]

    @cached_property
    def shape(self) -> tuple[int | None, ...]:
        """Extents of the buffer; ``None`` where symbolic."""
        return tuple(map(as_int, items_of(self.buffer.ty.shape)))

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return element_bytes(self.buffer)

    @cached_property
    def buffer_bytes(self) -> int:
        """Bytes of the whole buffer; a symbolic extent counts as 64."""
        return math.prod(extent or 64 for extent in self.shape) * self.element_bytes

    @property
    def place(self) -> Any:
        """The element's number in the buffer, in row-major order."""
        place: Any = 0
        for index, extent in zip(self.indices, self.buffer.ty.shape, strict=True):
            known = as_int(extent)
            place = place * (extent if known is None else known) + index
        return place

    def is_same(self, other: StageAccess) -> bool:
        """It is of the same element, always."""
        return self.buffer.same_as(other.buffer) and all(map(structural_equal, self.indices, other.indices))

    def stride(self, var: Any) -> int | None:
        """Elements that the address moves by when ``var`` grows by one; ``None`` if that is not a constant.

        Within a block of :meth:`period` elements, where the buffer is laid out in blocks.
        """
        if var not in self._strides:
            self._strides[var] = self._stride(var)
        return self._strides[var]

    @cached_property
    def _strides(self) -> dict[Any, int | None]:
        return {}

    def _stride(self, var: Any) -> int | None:
        total, weight = 0, 1
        for index, extent in zip(reversed(self.indices), reversed(self.shape), strict=True):
            step = _step(index, var)
            if step is None or (step and weight is None):
                return None
            total += step * (weight or 0)
            weight = weight * extent if extent is not None and weight is not None else None  # type: ignore[assignment]
        return total

    def period(self, var: Any) -> int:
        """The size of the blocks (``var // 16``, ``var % 16``) that the buffer has along ``var``; 0: none."""
        return math.lcm(*found) if (found := [p for index in self.indices for p in _divisors_of(index, var)]) else 0

    def moves_along_both(self, var: Any, other: Any) -> bool:
        """One of the indices depends on both, as that of a window does."""
        return any(depends_on(index, var) and depends_on(index, other) for index in self.indices)

    def uses(self, var: Any) -> bool:
        """The indices depend on ``var``."""
        if var not in self._uses:
            self._uses[var] = any(depends_on(index, var) for index in self.indices)
        return self._uses[var]

    @cached_property
    def _uses(self) -> dict[Any, bool]:
        return {}


def element_bytes(buffer: Any) -> int:
    """Bytes of an element."""
    return max(1, (int(tvm.DataType(str(buffer.ty.dtype)).bits) + 7) // 8)


def as_int(value: Any) -> int | None:
    """A number that is known; ``None`` for an expression."""
    return int(value) if isinstance(value, int | tirx.IntImm) else None


def depends_on(expr: Any, var: Any) -> bool:
    if type(expr) in (tirx.Var, tirx.IntImm):  # as most indices are
        return bool(expr.same_as(var))
    return any(node.same_as(var) for node in nodes_of(expr, tirx.Var))


def variables_of(expr: Any) -> set[Any]:
    """The variables that an expression depends on, or seems to."""
    return set(nodes_of(expr, tirx.Var))


def moved_by(index: Any) -> list[Any]:
    """The variable that an index is; of a place in a tile that may overlap another, that of tiles and that of places.

    For other expressions themselves.
    """
    if isinstance(index, tirx.Add) and isinstance(index.b, tirx.Var) and nodes_of(index.a, tirx.Min):
        return [*dict.fromkeys(nodes_of(index.a, tirx.Var)), index.b]
    return [index]


def _step(index: Any, var: Any) -> int | None:
    """``index(var + 1) - index(var)`` if constant."""
    if isinstance(index, int | tirx.IntImm):
        return 0
    if index.same_as(var):
        return 1
    if not depends_on(index, var):
        return 0
    periods = _divisors_of(index, var)
    here = var * math.lcm(*periods) if periods else var  # the first element of some block
    first, second = (substitute(index, {var: at}) for at in (here, here + 1))
    return as_int(tvm.sym.Analyzer().simplify(second - first))


def _divisors_of(index: Any, var: Any) -> list[int]:
    """The numbers that ``var`` itself is divided by."""
    divisions = () if isinstance(index, int) else nodes_of(index, tirx.FloorDiv, tirx.FloorMod)
    return [divisor for node in divisions if node.a.same_as(var) and (divisor := as_int(node.b))]


def places_of(axes: Sequence[Any], number: Any) -> dict[Any, Any]:
    """The place along every axis of the element of this number, where the last axis runs fastest.

    Axes have a ``var`` and an ``extent``.
    """
    places: dict[Any, Any] = {}
    for axis in reversed(axes[1:]):
        places[axis.var] = remainder(number, axis.extent)
        number = quotient(number, axis.extent)
    return places | ({axes[0].var: number} if axes else {})


def quotient(number: Any, count: Any) -> Any:
    """Neither is negative. TVM asks a symbol for its sign, in the midst of the statement that it writes."""
    return tirx.floordiv(number, count) if as_int(count) is not None else tirx.truncdiv(number, count)


def remainder(number: Any, count: Any) -> Any:
    """See :func:`quotient`."""
    return tirx.floormod(number, count) if as_int(count) is not None else tirx.truncmod(number, count)
