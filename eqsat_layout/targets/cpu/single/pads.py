"""Pads as a fill and a copy, both in vectors.

In: a schedule and a stage that pads. Out: the schedule changed in place. A condition inside of a vector, or on an axis
that a short last one (the three colours of an image) would have to be joined with, is taken element by element.
"""

from __future__ import annotations

import math
from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.vectors import lanes_of_run, vector_lanes
from eqsat_layout.targets.cpu.single.loops import run_of
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.stages import Stage, stage_of


def breaks_vectors(stage: Stage, width: int) -> bool:
    """Conditions change along the last axis, or that axis is short and no part of a vector of ``width`` elements."""
    last = stage.axes[-1]
    extent = last.extent or width
    return stage.branches_on(last.var) or (extent < width and width % extent != 0)


def fill_and_copy(sch: Any, stage: Stage, depth: int, machine: CpuMachine) -> list[list[Any]]:
    """The loops outside of the vectors, of the fill and of the copy; none where the stage is no pad.

    ``depth``: loops around the stage that are not its own.
    """
    if len(stage.loads) != 1 or len(stage.axes) < 2:
        return []
    first = lookups.get_loops(sch, stage.block)[depth]
    if not sch.can_decompose_padding(stage.block, first):
        return []
    fill = sch.decompose_padding(stage.block, first)
    return [_run_in_vectors(sch, block, machine) for block in (fill, stage.block)]


def _run_in_vectors(sch: Any, block: Any, machine: CpuMachine) -> list[Any]:
    """The loops outside. What lies in one piece is one loop first."""
    stage, loops = stage_of(sch, block), lookups.get_loops(sch, block)
    run = _whole_run(sch, stage, loops)
    extents = [loop_iterations(sch, loop) for loop in loops[-run:]]
    outer, last = list(loops[:-run]), sch.fuse(*loops[-run:]) if run > 1 else loops[-1]
    width = machine.lanes(stage.write.element_bytes)
    lanes = lanes_of_run(extents, width) if stage.loads else vector_lanes(math.prod(extents), width)
    if lanes > 1 and (stage.loads or lanes >= width):  # a fill that no vector divides LLVM does better
        last, lane = sch.split(last, [None, lanes])
        sch.vectorize(lane)
    return [*outer, last]


def _whole_run(sch: Any, stage: Stage, loops: list[Any]) -> int:
    """How many of the last axes are one run of memory, of which the loops inside take all."""
    run = max(1, run_of(stage.axes, [stage.write, *stage.loads]))
    axes = dict(zip(range(-len(stage.axes), 0), stage.axes, strict=True))
    inside = range(-1, -run, -1)
    part = next((-place for place in inside if loop_iterations(sch, loops[place]) != axes[place].extent), run)
    return min(run, part)
