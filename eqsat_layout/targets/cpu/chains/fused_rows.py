"""Several stages as one kernel, a few rows at a time, which stay in L1: softmax, norms and their kin.

In: a schedule over stages that reduce the last axis of a tensor and use what they found along it. Out: the schedule
changed in place; refused where that gains nothing or TVM can't do it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.chains.row_blocks import ROWS, RowBlock, row_blocks
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.row_lanes import row_lanes
from eqsat_layout.targets.cpu.single.loops import in_vectors
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.stages import Stage, divisors, stage_of

_FILL = 0.5  # of the working set of L2, for what lies between stages


def schedule_fused_rows(sch: Any, stages: Sequence[Stage], count: int, machine: CpuMachine) -> None:
    """Few rows of the last stage's result at a time, in parallel; all that they need is made just before them.

    ``count``: of its axes number the rows.
    """
    *earlier, last = stages
    width = machine.lanes(last.write.element_bytes)
    lanes = {stage.name: row_lanes(stage, machine) for stage in earlier if stage.is_reduction}
    most = ROWS if all(lanes.values()) else machine.sums_in_flight
    size, axis = max((max(divisors(a.extent or 1, most)), i) for i, a in enumerate(last.axes[:count]))
    rows = math.prod(axis.extent or 1 for axis in last.axes[:count])
    between = sum(stage.domain * stage.write.element_bytes for stage in earlier if not stage.is_reduction)
    if rows // size < machine.cores or between * size // rows > _FILL * machine.l2_working_set:
        raise Refused("too few rows, or too long ones")
    if not all(lanes.values()) and size * 2 < machine.sums_in_flight:
        raise Refused("no rows side by side")
    blocks: list[RowBlock] = []
    for stage in earlier:
        if stage.is_reduction:
            blocks += row_blocks(sch, stage, lanes[stage.name])
        else:
            blocks.append(RowBlock(stage.block, partial(_in_vectors, width=width)))
    at = _split(sch, lookups.get_loops(sch, last.block)[:count], axis, size, machine)
    _in_vectors(sch, last.block, width)
    domains = [math.prod(axis.extent or 1 for axis in stage_of(sch, one.block).axes) for one in blocks]
    for one in reversed(blocks):
        sch.compute_at(one.block, at, preserve_unit_loops=True)
        sch.set_scope(one.block, 0, "local")
    for one, domain in zip(blocks, domains, strict=True):
        own = lookups.get_loops(sch, one.block)[-len(lookups.get(sch, one.block).iter_vars) :]
        if math.prod(loop_iterations(sch, loop) for loop in own) * rows != domain * size:
            raise Refused("rows that need others: these would be made again and again")
        one.finish(sch, one.block)


def _split(sch: Any, loops: Sequence[Any], axis: int, size: int, machine: CpuMachine) -> Any:
    """The loop over groups of rows, ``size`` of them along one axis."""
    head, tail = sch.split(loops[axis], [None, size])
    outer = [*loops[:axis], head, *loops[axis + 1 :]]
    sch.reorder(*outer, tail)
    at = sch.fuse(*outer) if outer[1:] else head
    if machine.cores > 1:
        sch.parallel(at)
    return at


def _in_vectors(sch: Any, block: Any, width: int) -> None:
    stage = stage_of(sch, block)
    if not stage.branches_on(stage.axes[-1].var):
        in_vectors(sch, lookups.get_loops(sch, block)[-1], width)
