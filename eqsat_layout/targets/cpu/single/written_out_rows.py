"""Rows written out, as what is read of a row depends on the place in it: resizes, strides.

In: a block whose loads jump along their row in a way that is known. Out: statements that pick elements out of the two
vectors that hold them; what else depends on the place in the row is a table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import LaneBody, Lanes, constant, lanes_along, picked, table_of, vector_at
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import store_of

_MOST_LOADS = 512  # straight code takes LLVM long


def written_out_rows(block: Any, stage: Stage, machine: CpuMachine) -> LaneBody:
    """The statements: straight code for a whole row."""
    store = store_of(block)
    *outer, last = block.iter_vars
    extent = int(last.dom.extent)
    size = lanes_along(stage, machine, extent)
    starts = [min(start, extent - size) for start in range(0, extent, size)]
    if not outer or len(starts) * len(stage.loads) > _MOST_LOADS:
        raise Refused("rows of another length")
    statements: list[Any] = []
    for start in starts:
        row = _Row(last.var, start, size)
        value = Lanes(last.var, size, row.load, row.table).of(store.value)
        target = [*store.indices[:-1], tirx.IntImm(str(last.var.ty.dtype), start)]
        statements.append(tirx.BufferStore(store.buffer, value, vector_at(target, size)))
    return LaneBody(outer, statements, 0)


class _Row(NamedTuple):
    """A vector of ``size`` elements, from ``start`` on, of a row that ``var`` counts."""

    var: Any
    start: int
    size: int

    def values(self, expr: Any) -> Any:
        """What ``expr``, which depends on the place in the row only, is for the elements."""
        with np.errstate(all="ignore"):  # as the kernel would
            return table_of(expr, self.var, self.start + np.arange(self.size))

    def table(self, expr: Any) -> Any:
        """The vector of these."""
        return constant(self.values(expr))

    def load(self, load: Any) -> Any:
        """The elements of a load that moves along the last axis of its buffer."""
        *outer, index = load.indices
        if any(StageAccess(load.source, (other,)).uses(self.var) for other in outer):
            raise Refused("along another axis of the operand")

        def read(start: int, count: int) -> Any:
            return tirx.BufferLoad(load.source, vector_at([*outer, tirx.IntImm(str(index.ty.dtype), start)], count))

        return picked(read, self.values(index), int(load.source.ty.shape[-1]))
