"""Reductions of rows inside of a tile, their partial results in the lanes of vectors.

In: a schedule and a stage that reduces along memory. Out: its blocks in the order in which they run, and what is done
to the loops of each over the rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.row_lanes import row_lanes
from eqsat_layout.targets.cpu.single.tile_loops import across_lanes, reduce_lanes, reduce_side_by_side
from eqsat_layout.targets.schedules.stages import Stage

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
    partial_results = [RowBlock(block, partial(reduce_lanes, most=_ROWS)) for block in blocks]
    return [*partial_results, RowBlock(stage.block, partial(reduce_side_by_side, most=_ROWS))]
