"""Windows that move by strides along the vectors of their results: their data lie in phases.

In: a schedule. Out: a new one in which the data of such a reduction are a copy where the elements ``stride`` apart lie
side by side: all elements at places 0, 2, 4, ... of a row, then all at 1, 3, 5, ... A vector of the result reads whole
vectors of it then. Padding is a copy already, and is made so in the first place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.cost.vectorise import MOST_PHASES
from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.costs import PHASE
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import any_tile_cycles, lane_tile_cycles
from eqsat_layout.targets.cpu.single.order_axes import order_axes
from eqsat_layout.targets.cpu.single.rows_first import OF_ROWS, rows_first
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int, depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import is_parameter
from eqsat_layout.targets.schedules.rebuild import counting_axis, schedule_over
from eqsat_layout.targets.schedules.stages import Stage, stage_of, stages_of
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.blocks import block_of, statements_of, store_of, storing_block, with_accesses
from eqsat_layout.tir.structural import substitute


@dataclass(frozen=True)
class _Strided:
    """``reads``: the loads of a stage that move by ``stride`` along the vector axis ``var``; ``data``: their buffer."""

    stage: Stage
    var: Any
    stride: int
    data: Any
    rest: Any
    """One phase only: the place at which it begins; ``None``: there are all."""


def in_phases(sch: Any, machine: CpuMachine) -> Any:
    """``sch`` itself where no window has strides along vectors, or it is no faster so."""
    for number in range(len(stages_of(sch))):
        sch = unless_refused(partial(_moved, sch, number, machine)) or sch
    return sch


def _moved(sch: Any, number: int, machine: CpuMachine) -> Any:
    """Stage ``number`` over data in phases, all of them or what is left of several rows; ``None`` where that takes
    longer."""
    stage = stages_of(sch)[number]
    found = _strided(stage)
    rows = unless_refused(partial(rows_first, sch, stage, found.var, found.data, machine))
    plain = any_tile_cycles(stage, machine) or (_cycles_in_lanes(sch, number, machine) if rows is None else None)
    least, best = math.inf if plain is None else plain * stage.domain, None
    for own in (sch, rows):
        if own is None:
            continue
        along = stage_of(own, own.get_sblock(stage.name))
        moved = _strided(along)
        trial = _Phases(own, moved).schedule()
        steps = [stage_of(trial, trial.get_sblock(stage.name))]
        if own is not sch:
            steps.append(stage_of(own, own.get_sblock(f"{stage.name}{OF_ROWS}")))
        each = [any_tile_cycles(step, machine) for step in steps]
        if None in each:
            continue
        copied = PHASE * math.prod(extent or 1 for extent in StageAccess(moved.data, ()).shape)
        taken = copied + sum((cycles or 0) * step.domain for cycles, step in zip(each, steps, strict=True))
        if taken < least:
            least, best = taken, trial
    return best


def _cycles_in_lanes(sch: Any, number: int, machine: CpuMachine) -> float | None:
    """Per step and element with partial results in lanes: windows may lie side by side, as groups of channels do."""
    return None if machine.is_exact else lane_tile_cycles(stages_of(order_axes(sch, machine))[number], machine)


def _strided(stage: Stage) -> _Strided:
    if not (stage.simple and stage.is_plain and stage.is_reduction and stage.spatial):
        raise Refused("no reduction")
    var = stage.spatial[-1].var
    moving = [load for load in stage.loads if load.stride(var) not in (0, 1)]
    data = moving[0].buffer if moving else None
    own = [load for load in stage.loads if data is not None and load.buffer.same_as(data)]
    strides = {load.stride(var) for load in own}
    stride = next(iter(strides)) or 0 if strides else 0
    if len(strides) != 1 or not 1 < stride <= MOST_PHASES or len({load.buffer for load in moving}) != 1:
        raise Refused("no strides")
    if any(extent is None for extent in own[0].shape) or stage.spatial[-1].extent is None:
        raise Refused("sizes that are not known")
    if any(depends_on(index, var) for load in own for index in load.indices[:-1]):
        raise Refused("along another axis of the data")
    return _Strided(stage, var, stride, data, _only_phase(stage, own, var, stride))


def _only_phase(stage: Stage, loads: list[StageAccess], var: Any, stride: int) -> int | None:
    """The place in its turn of all elements that are read, where that is the same; else ``None``."""
    analyzer = analyzer_over(stage.axes)
    zero = tirx.const(0, str(var.ty.dtype))
    rests = {
        as_int(analyzer.simplify(tirx.floormod(substitute(own.indices[-1], {var: zero}), stride))) for own in loads
    }
    return rests.pop() if len(rests) == 1 else None


class _Phases:
    """The function with the copy, made by the stage that makes the data, or by one more."""

    def __init__(self, sch: Any, found: _Strided) -> None:
        self._func, self._found = sch.mod["main"], found
        maker = self._maker(sch)
        self._maker_name = None if maker is None else maker.name
        *outer, row = found.data.ty.shape
        self._dtype, self._row = str(row.ty.dtype), int(row)
        self._phases = 1 if found.rest is not None else found.stride
        self._each = math.ceil((self._row - (found.rest or 0)) / found.stride)
        sizes = [tirx.IntImm(self._dtype, extent) for extent in (self._phases, self._each)]
        self._copy = tirx.decl_buffer(
            [*outer, *sizes], found.data.ty.dtype, f"{found.data.name}_phases", scope=found.data.scope(), layout=None
        )

    def _maker(self, sch: Any) -> Stage | None:
        """The stage that makes the data for this reader only, element by element."""
        makers = [s for s in stages_of(sch) if s.write.buffer.same_as(self._found.data)]
        if len(makers) != 1 or is_parameter(sch, makers[0]):
            return None
        maker = makers[0]
        is_plain = maker.simple and maker.is_plain and not maker.is_reduction
        return maker if is_plain and len(lookups.get_consumers(sch, maker.block)) == 1 else None

    def schedule(self) -> Any:
        root = self._func.body.block
        statements: list[Any] = []
        for statement in statements_of(self._func):
            block = block_of(statement)
            if block.name_hint == self._found.stage.name:
                if self._maker_name is None:
                    statements.append(self._copying())
                statements.append(self._reading(block))
            elif block.name_hint == self._maker_name:
                statements.append(self._making(block))
            else:
                statements.append(statement)
        is_made = self._maker_name is not None
        kept = [buffer for buffer in root.alloc_buffers if not (is_made and buffer.same_as(self._found.data))]
        return schedule_over(self._func, statements, [*kept, self._copy])

    def _making(self, block: Any) -> Any:
        """The stage that makes the data, over phases."""
        *outer, row = block.iter_vars
        store = store_of(block)
        return self._over_phases(outer, block.name_hint, lambda at: substitute(store.value, {row.var: at}))

    def _copying(self) -> Any:
        shape = list(self._found.data.ty.shape)[:-1]
        domains = [tvm.ir.Range(tirx.IntImm(str(extent.ty.dtype), 0), extent) for extent in shape]
        axes = [
            tirx.IterVar(own, tvm.ir.Var(f"v{n}", own.extent.ty), tirx.IterVar.DataPar) for n, own in enumerate(domains)
        ]
        places = [axis.var for axis in axes]
        name = f"{self._copy.name}_of_{self._found.stage.name}"
        return self._over_phases(axes, name, lambda at: tirx.BufferLoad(self._found.data, [*places, at]))

    def _over_phases(self, outer: Any, name: str, value: Any) -> Any:
        phase, place = (counting_axis(*own, self._dtype) for own in (("p", self._phases), ("q", self._each)))
        first = phase.var if self._found.rest is None else tirx.IntImm(self._dtype, self._found.rest)
        at = place.var * self._found.stride + first
        element = value(at)
        if self._each * self._found.stride > self._row - (self._found.rest or 0) and self._phases > 1:
            zero = tirx.const(0, str(self._copy.ty.dtype))
            element = tirx.if_then_else(at < self._row, element, zero)  # the last ones of some phases
        store = tirx.BufferStore(self._copy, element, [*(axis.var for axis in outer), phase.var, place.var])
        return storing_block([*outer, phase, place], name, store)

    def _reading(self, block: Any) -> Any:
        analyzer = analyzer_over(self._found.stage.axes)

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            if not buffer.same_as(self._found.data):
                return buffer, indices
            *outer, at = indices
            turn, number = (own(at, self._found.stride) for own in (tirx.floormod, tirx.floordiv))
            turn = turn if self._phases > 1 else tirx.IntImm(self._dtype, 0)
            return self._copy, [*outer, analyzer.simplify(turn), analyzer.simplify(number)]

        body = with_accesses(store_of(block), place)
        return storing_block(block.iter_vars, block.name_hint, body, block.init, block.annotations)
