"""Schedules over functions that are put together again, and axes that are cut.

In: the blocks of an unscheduled PrimFunc, changed, and its buffers. Out: a schedule over the new function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Var

from eqsat_layout.targets.schedules.stages import new_schedule
from eqsat_layout.tir.blocks import function_over


@dataclass(frozen=True)
class CutAxis:
    """``extent`` elements as ``number`` of a tile and ``place`` inside it, which are axes of a block.

    A last tile that would run over the end starts earlier: ``start`` is where it were without that, ``first`` its first
    element.
    """

    number: Any
    place: Any
    start: Any
    first: Any

    @property
    def element(self) -> Any:
        """The element at the place."""
        return self.first + self.place.var

    @staticmethod
    def of(extent: int, count: int, size: int, dtype: str, kind: int = tirx.IterVar.DataPar) -> CutAxis:
        """``count`` tiles of ``size`` elements."""
        number, place = counting_axis("t", count, dtype, kind), counting_axis("r", size, dtype, kind)
        start = number.var * size
        unit = math.gcd(size, extent - size)  # a factor in sight: blocks of operands that it divides are not torn
        steps = tirx.min(number.var * (size // unit), tirx.IntImm(dtype, (extent - size) // unit))
        first = steps * unit if extent < count * size else start
        return CutAxis(number, place, start, first)


def counting_axis(name: str, extent: int, dtype: str, kind: int = tirx.IterVar.DataPar) -> Any:
    """An axis of a block, which counts from zero."""
    domain = tvm.ir.Range(tirx.IntImm(dtype, 0), tirx.IntImm(dtype, extent))
    return tirx.IterVar(domain, Var(name, dtype), kind)


def schedule_over(func: Any, statements: Sequence[Any], allocated: Sequence[Any]) -> Any:
    """A schedule over ``func`` with other statements in its root block, and other buffers allocated there."""
    return new_schedule(function_over(func, statements, allocated, func.params))
