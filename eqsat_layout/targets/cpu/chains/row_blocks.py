"""Reductions of rows inside of a tile, their partial results in the lanes of vectors.

In: a schedule and a stage that reduces along memory. Out: its blocks in the order in which they run, and what is done
to the loops of each over the rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.row_lanes import row_lanes
from eqsat_layout.targets.cpu.single.tile_loops import across_lanes, axis_loops, extent_of
from eqsat_layout.targets.schedules.stages import Stage, divisors, stage_of

_ROWS = 4  # at once: the additions of one wait less for each other


@dataclass(frozen=True)
class RowBlock:
    """A block, and what is done to its loops over a few rows."""

    block: Any
    finish: Callable[[Any, Any], None]


def row_blocks(sch: Any, stage: Stage, machine: CpuMachine) -> Sequence[RowBlock]:
    """The blocks of a stage of rows, whose results are few: they are kept apart from memory."""
    lanes = row_lanes(stage, machine)
    if not lanes:
        raise Refused("no vectors along rows")
    blocks = across_lanes(sch, stage, lanes)
    for block in (*blocks, stage.block):
        sch.set_scope(block, 0, "local")
    return [*(RowBlock(block, _lanes) for block in blocks), RowBlock(stage.block, _side_by_side)]


def _lanes(sch: Any, block: Any) -> None:
    """Inside a tile: the steps of a reduction outside, its partial results written out, their lanes in vectors."""
    stage = stage_of(sch, block)
    lane = stage.write.indices[-1]  # rfactor puts it last in the buffer, and first among the axes
    spatial, steps = axis_loops(sch, stage)
    is_lane = [axis.var.same_as(lane) for axis in stage.spatial]
    lanes = spatial.pop(is_lane.index(True))
    rows = _few_rows(sch, spatial)
    sch.reorder(*steps, rows, lanes)
    sch.unroll(rows)
    sch.vectorize(lanes)
    sch.decompose_reduction(block, steps[0])


def _side_by_side(sch: Any, block: Any) -> None:
    spatial, steps = axis_loops(sch, stage_of(sch, block))
    rows = _few_rows(sch, spatial)
    sch.reorder(*steps, rows)
    sch.unroll(rows)
    sch.decompose_reduction(block, steps[0])


def _few_rows(sch: Any, loops: Sequence[Any]) -> Any:
    """A few of the rows as the loop that is to be innermost of these."""
    at = max(range(len(loops)), key=lambda i: extent_of(sch, loops[i]))
    head, few = sch.split(loops[at], [None, max(divisors(extent_of(sch, loops[at]), _ROWS))])
    sch.reorder(*loops[:at], head, *loops[at + 1 :], few)
    return few
