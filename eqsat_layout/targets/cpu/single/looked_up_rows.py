"""Short runs of memory whose place is looked up: the channels of pixels that are resized, channels last.

In: a block whose loads lie along its last axis as the result does, at places that are no sums of digits of the axis
before it. Out: for a row of runs, first tables of what depends on the place in it only, then each run in vectors, of
which the last overlaps the one before.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import LaneBody, Lanes, lanes_of_stage, vector_at
from eqsat_layout.targets.schedules.accesses import StageAccess, element_bytes
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.arithmetic import BINARY
from eqsat_layout.tir.blocks import sequence, store_of
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of, structural_map_outermost, substitute

_COSTLY = (tirx.Cast, tvm.ir.Call)
"""What is worth a table: numbers that change their type, or are rounded."""
_MOST_VECTORS = 64  # of a run: straight code takes LLVM long
_MOST_BYTES = 1 << 14
"""Of all tables of a row: they stay in the cache beside what is read."""


def is_looked_up(load: StageAccess, stage: Stage) -> bool:
    """The place of a run of it is no sum of digits of the axis before the last one."""
    return len(stage.axes) > 1 and load.stride(stage.axes[-2].var) is None


def looked_up_rows(block: Any, stage: Stage, machine: CpuMachine) -> LaneBody:
    """The statements, for a row of runs."""
    return _Runs(block, stage, machine).body()


class _Runs:
    def __init__(self, block: Any, stage: Stage, machine: CpuMachine) -> None:
        if len(stage.axes) < 2:
            raise Refused("a run alone")
        self._store = store_of(block)
        *self._outer, self._line, self._last = block.iter_vars
        last = stage.axes[-1].var
        strides = [load.stride(last) for load in stage.loads]
        if any(stride not in (0, 1) for stride in strides) or any(load.period(last) for load in stage.loads):
            raise Refused("runs that lie otherwise than the result")
        if not any(is_looked_up(load, stage) for load in stage.loads):
            raise Refused("no run is looked up")
        self._extent, self._count = int(self._last.dom.extent), int(self._line.dom.extent)
        self._size = lanes_of_stage(stage, machine, self._extent)
        if self._extent > _MOST_VECTORS * self._size:
            raise Refused("more than straight code is good for")
        self._lanes = min(machine.lanes(4), self._count)
        self._dtype = str(self._line.var.ty.dtype)
        self._tables: list[tuple[Any, Any]] = []

    def body(self) -> LaneBody:
        """All statements, and the axes around them."""
        value = self._with_tables(self._store.value)
        if not self._tables and self._extent % self._size == 0:
            raise Refused("nothing is worked out for a run")
        starts = (min(first, self._extent - self._size) for first in range(0, self._extent, self._size))
        run = [self._vector(value, first) for first in starts]
        tables = [self._filled(expr, table) for expr, table in self._tables]
        loop = tirx.For(self._line.var, self._number(0), self._number(self._count), tirx.ForKind.SERIAL, sequence(run))
        return LaneBody(self._outer, [*tables, loop], 0, [table for _, table in self._tables])

    def _vector(self, value: Any, first: int) -> Any:
        start = self._number(first)

        def load(one: Any) -> Any:
            return tirx.BufferLoad(
                one.source, vector_at([substitute(i, {self._last.var: start}) for i in one.indices], self._size)
            )

        def table(expr: Any) -> Any:
            raise Refused(f"{expr} depends on the place in the run")

        made = Lanes(self._last.var, self._size, load, table).of(value)
        return tirx.BufferStore(self._store.buffer, made, vector_at([*self._store.indices[:-1], start], self._size))

    def _with_tables(self, expr: Any) -> Any:
        """``expr`` with loads of tables in the place of its largest parts that depend on the line only."""

        def on_part(part: Any) -> Any:
            used = nodes_of(part, tirx.Var)
            is_known = all(var.same_as(self._line.var) for var in used) and not nodes_of(part, tvm.ir.TensorLoad)
            is_costly = any(not is_choice(node) for node in nodes_of(part, *_COSTLY))
            if not used or not is_known or not is_costly:
                return None
            return tirx.BufferLoad(self._table(part), [self._line.var])

        return structural_map_outermost(expr, ((*BINARY, *_COSTLY), on_part))

    def _table(self, expr: Any) -> Any:
        for known, table in self._tables:
            if tvm_ffi.structural_equal(known, expr):
                return table
        number = tirx.IntImm(self._dtype, self._count)
        table = tirx.decl_buffer((number,), expr.ty.dtype, f"table{len(self._tables)}", scope="local", layout=None)
        self._tables.append((expr, table))
        if sum(self._count * element_bytes(own) for _, own in self._tables) > _MOST_BYTES:
            raise Refused("tables that no cache holds")
        return table

    def _filled(self, expr: Any, table: Any) -> Any:
        """The loop that makes a table."""
        part, lane = tirx.Var("part", self._dtype), tirx.Var("lane", self._dtype)
        place = tirx.min(part * self._lanes, self._number(self._count - self._lanes)) + lane
        store = tirx.BufferStore(table, substitute(expr, {self._line.var: place}), [place])
        vector = tirx.For(lane, self._number(0), self._number(self._lanes), tirx.ForKind.VECTORIZED, store)
        return tirx.For(
            part, self._number(0), self._number(-(-self._count // self._lanes)), tirx.ForKind.SERIAL, vector
        )

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._dtype, value)
