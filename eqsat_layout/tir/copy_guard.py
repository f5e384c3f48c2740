"""What a copying block loads, and where it does: elsewhere it stores one number.

In: the value that the block stores. Out: :class:`Guard`; and, by evaluating its conditions at every point of the
iteration variables in them, the box of what is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.maps import Digit, Extent, Fill, exact_fill
from eqsat_layout.tir.computation import Value
from eqsat_layout.tir.copy_digits import NotACopyError, known, number_at, values_of_digits
from eqsat_layout.tir.index_values import values_at

MAX_POINTS = 1 << 22
"""Conditions over more points than this are not evaluated."""


@dataclass(frozen=True)
class Guard:
    """``load`` where all of ``conditions`` hold as they are said to, ``fill`` elsewhere."""

    load: Value
    conditions: tuple[tuple[Value, bool], ...] = ()
    fill: Fill = None


def guard_of(value: Value) -> Guard | None:
    """The guard of a stored value; ``None`` where it is anything but a load and one number around it."""
    if value.op == "load":
        return Guard(value)
    if value.op not in ("prim.if_then_else", "Select"):
        return None
    condition, yes, no = value.args
    for inside, outside, wanted in ((yes, no, True), (no, yes, False)):
        fill, inner = _number(outside), guard_of(inside)
        if fill is not None and inner is not None and inner.fill in (None, fill):
            return Guard(inner.load, ((condition, wanted), *inner.conditions), fill)
    return None


def _number(value: Value) -> float | int | None:
    if value.op != "const":
        return None
    return exact_fill(value.number)


@dataclass(frozen=True)
class GuardedPoints:
    """The points at which all ``conditions`` hold, among those of a block's iteration variables."""

    conditions: tuple[tuple[Value, bool], ...]
    extents: tuple[Extent, ...]

    @cached_property
    def _deciding(self) -> frozenset[int]:
        """The iteration variables that decide what is padding."""
        values = [v for condition, _ in self.conditions for v in condition.walk()]
        return frozenset(int(v.literal) for v in values if v.op == "iter")

    def decide(self, digits: Sequence[Digit]) -> bool:
        """Some of the conditions are about variables of ``digits``."""
        return bool({d.axis for d in digits} & self._deciding)

    def range_of(self, digits: Sequence[Digit]) -> tuple[int, int]:
        """The half-open range of the values that the number of ``digits`` has where the conditions hold."""
        iters = {d.axis for d in digits}
        if not iters & self._deciding:
            return 0, values_of_digits(digits)
        values = self._grid(iters | self._deciding)
        inside = self._inside(values)
        number = np.broadcast_to(number_at(digits, values), inside.shape)[inside]
        return int(number.min()), int(number.max()) + 1

    def check_box(self, ranges: Sequence[tuple[Sequence[Digit], tuple[int, int]]]) -> None:
        """The conditions hold just where each number lies in its range; raises :class:`NotACopyError` otherwise."""
        if not self.conditions:
            return
        decided = [(digits, bounds) for digits, bounds in ranges if {d.axis for d in digits} & self._deciding]
        values = self._grid({d.axis for digits, _ in decided for d in digits} | self._deciding)
        inside = self._inside(values)
        box: Any = np.array(True)
        for digits, (low, high) in decided:
            number = number_at(digits, values)
            box = box & (low <= number) & (number < high)
        if not np.array_equal(np.broadcast_to(box, inside.shape), inside):
            raise NotACopyError

    def _inside(self, values: Mapping[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
        shape = np.broadcast_shapes(*(v.shape for v in values.values()))
        inside = np.full(shape, True)
        for condition, wanted in self.conditions:
            found = values_at(condition, values)
            if found is None:
                raise NotACopyError
            inside &= np.asarray(found, dtype=bool) == wanted
        if not inside.any():
            raise NotACopyError
        return inside

    def _grid(self, iters: Set[int]) -> dict[int, npt.NDArray[np.int64]]:
        extents = {i: known(self.extents[i]) for i in sorted(iters)}
        if math.prod(extents.values()) > MAX_POINTS:
            raise NotACopyError
        values: dict[int, npt.NDArray[np.int64]] = {}
        for place, (number, extent) in enumerate(extents.items()):
            shape = [extent if p == place else 1 for p in range(len(extents))]
            values[number] = np.arange(extent, dtype=np.int64).reshape(shape)
        return values
