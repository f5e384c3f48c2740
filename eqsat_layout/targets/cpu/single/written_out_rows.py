"""Rows written out, as what is read of a row depends on the place in it: resizes, strides.

In: a block whose loads jump along their row in a way that is known. Out: statements that pick elements out of the two
vectors that hold them; what else depends on the place in the row is a table. Where the last axis is shorter than a
vector (colours of a pixel), it is one row with the axis before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import (
    LaneBody,
    Lanes,
    constant_vector,
    lanes_of_stage,
    picked,
    table_of,
    vector_at,
)
from eqsat_layout.targets.schedules.accesses import as_int, depends_on, places_of
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import store_of
from eqsat_layout.tir.structural import substitute

_MOST_LOADS = 768  # straight code takes LLVM long


def written_out_rows(block: Any, stage: Stage, machine: CpuMachine, *, is_dense: bool) -> LaneBody:
    """The statements: straight code for a whole row; of two axes only where rows lie one after another."""
    last = stage.axes[-1]
    is_short = is_dense and (last.extent or 0) < machine.lanes(stage.write.element_bytes)
    joined = unless_refused(partial(_written_out, block, stage, machine, 2)) if is_short else None
    if joined is None and all(load.stride(last.var) in (0, 1) and not load.period(last.var) for load in stage.loads):
        raise Refused("nothing moves along the row")
    return joined or _written_out(block, stage, machine, 1)


def _written_out(block: Any, stage: Stage, machine: CpuMachine, count: int) -> LaneBody:
    """Rows along the last ``count`` axes."""
    store = store_of(block)
    outer, axes = list(block.iter_vars[:-count]), stage.axes[-count:]
    extent = math.prod(axis.extent or 0 for axis in axes)
    size = lanes_of_stage(stage, machine, extent)
    starts = [min(start, extent - size) for start in range(0, extent, size)]
    if not outer or len(starts) * len(stage.loads) > _MOST_LOADS:
        raise Refused("rows of another length")
    var = axes[0].var if count == 1 else tirx.Var("p", axes[0].var.ty.dtype)
    value = store.value if count == 1 else substitute(store.value, places_of(axes, var))
    statements: list[Any] = []
    for start in starts:
        row = _Row(var, start + np.arange(size))
        vector = Lanes(var, size, row.load, row.table).of(value)
        target = _in_row(store.indices[:-count], store.indices[-count:], start, size)
        statements.append(tirx.BufferStore(store.buffer, vector, target))
    return LaneBody(outer, statements, 0)


@dataclass(frozen=True)
class _Row:
    """A vector of elements at the ``places`` of a row that ``var`` counts."""

    var: Any
    places: npt.NDArray[np.int64]

    def values(self, expr: Any) -> npt.NDArray[Any]:
        """What ``expr``, which depends on the place in the row only, is for the elements."""
        with np.errstate(all="ignore"):  # as the kernel would
            return table_of(expr, self.var, self.places)

    def table(self, expr: Any) -> Any:
        """The vector of these."""
        return constant_vector(self.values(expr))

    def load(self, load: Any) -> Any:
        """The elements of a load that moves along the last axes of its buffer, which are one row of it."""
        outer = list(itertools.takewhile(lambda index: not depends_on(index, self.var), load.indices))
        along, extents = load.indices[len(outer) :], [as_int(n) for n in load.source.ty.shape[len(outer) :]]
        if not along or None in extents:
            raise Refused("along another axis of the operand")
        places: Any = 0
        for index, extent in zip(along, extents, strict=True):
            places = places * extent + self.values(index)

        def read(start: int, count: int) -> Any:
            return tirx.BufferLoad(load.source, _in_row(outer, along, start, count))

        return picked(read, np.broadcast_to(places, self.places.shape), math.prod(filter(None, extents)))


def _in_row(outer: Sequence[Any], along: Sequence[Any], start: int, count: int) -> list[Any]:
    """The indices of ``count`` elements, where the axes ``along`` are one row: its first part runs on into others."""
    *rest, last = (tirx.IntImm(str(index.ty.dtype), 0) for index in along)
    return vector_at([*outer, *rest, last + start], count)
