"""Reductions of rows, a few at a time, their partial results in the lanes of vectors.

In: a schedule and a stage that reduces along memory. Out: its blocks in the order in which they run, and what is done
to the loops of each over the rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat_layout.targets.cpu.single.tile_loops import across_lanes, reduce_lanes, reduce_side_by_side
from eqsat_layout.targets.schedules.stages import Stage

ROWS = 4
"""At once, where vectors divide a row: the additions of one wait less for each other."""


@dataclass(frozen=True)
class RowBlock:
    """A block, and what is done to its loops over a few rows."""

    block: Any
    finish: Callable[[Any, Any], None]


def row_blocks(sch: Any, stage: Stage, lanes: int, most: int | None = None) -> list[RowBlock]:
    """``lanes``: partial results side by side, 0 for none. ``most``: rows that are written out, if not all."""
    partial_results = across_lanes(sch, stage, lanes) if lanes else []
    return [
        *(RowBlock(block, partial(reduce_lanes, most=most)) for block in partial_results),
        RowBlock(stage.block, partial(reduce_side_by_side, most=most)),
    ]
