"""Reductions to several results at once, as a sum and one of squares, or a largest element and where it is.

In: a schedule and such a stage. Out: the schedule changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.vectors import vector_lanes
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.tiled_reduction import is_one_sum
from eqsat_layout.targets.cpu.single.loops import SMALL, in_parallel, leading_axes, run_of
from eqsat_layout.targets.cpu.single.tile_loops import partial_results, reduce_lanes, refuse_partial_results
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations
from eqsat_layout.targets.schedules.accesses import StageAxis
from eqsat_layout.targets.schedules.stages import Stage, divisors

_FEWEST = 4  # lanes that are worth a vector
_VECTORS = 6  # side by side, none of which waits for another's step; LLVM keeps those of odd lengths in memory
_WAITS = 3  # vectors whose steps take the time that one waits for its last step


def _schedule(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Vectors of partial results, then across these."""
    refuse_partial_results(machine)
    count = len(stage.spatial)
    loops = sch.get_loops(stage.block)
    if len(stage.stores) < 2 or len(loops) != len(stage.axes) or leading_axes(stage) != count:
        raise Refused("no reduction to several results")
    width = machine.lanes(max(store.element_bytes for store in stage.stores))
    choices = [_lanes_of_last(stage.reduced, run, width) for run in range(1, run_of(stage.reduced, stage.loads) + 1)]
    lanes = max(choices, default=1)
    if lanes < 2:
        raise Refused("no vector axis")
    run = choices.index(lanes) + 1
    _, lane = sch.split(sch.fuse(*loops[-run:]) if run > 1 else loops[-1], [None, lanes])
    partial = partial_results(sch, lane, stage)
    *own, across = sch.get_loops(stage.block)
    in_parallel(sch, own, machine, stage)
    sch.unroll(across)
    at = sch.get_loops(stage.block)[-2] if own else sch.add_unit_loop(across)
    sch.compute_at(partial, at, preserve_unit_loops=True)
    for number in range(len(stage.stores)):
        sch.set_scope(partial, number, "local")
    reduce_lanes(sch, partial)


def _side_by_side(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Every lane of a vector has results of its own, and takes the steps in order."""
    count = len(stage.spatial)
    loops = sch.get_loops(stage.block)
    if len(stage.stores) < 2 or len(loops) != len(stage.axes) or not count or leading_axes(stage) != count:
        raise Refused("no reduction to several results")
    last = stage.spatial[-1].var
    strides = {load.stride(last) for load in stage.loads}
    if not {1} <= strides <= {0, 1}:
        raise Refused("no vector axis")
    run = run_of(stage.spatial, [*stage.loads, *stage.stores])
    lanes = _lanes_of_any(stage.spatial, run, machine.lanes(max(store.element_bytes for store in stage.stores)))
    if lanes < _FEWEST:
        raise Refused("no vector axis")
    outer, steps = loops[:count], loops[count:]
    joined = sch.fuse(*outer[-run:]) if run > 1 else outer[-1]
    all_vectors = loop_iterations(sch, joined) // lanes
    vectors = (
        1 if lanes % 2 else _vectors(all_vectors, [loop_iterations(sch, loop) for loop in outer[:-run]], stage, machine)
    )
    tile, vector, lane = sch.split(joined, [None, vectors, lanes])
    sch.reorder(*steps, vector, lane)
    sch.unroll(vector)
    sch.vectorize(lane)
    in_parallel(sch, [*outer[:-run], tile], machine, stage)
    sch.decompose_reduction(stage.block, steps[0])


def _vectors(count: int, outer: Sequence[int], stage: Stage, machine: CpuMachine) -> int:
    """Of ``count`` vectors in each iteration of the ``outer`` loops, those side by side that take the least time, of
    which waits are a part. Then as many cores as can be share the work, as it may come from memory."""
    cores = machine.cores if stage.domain >= SMALL else 1

    def preference(vectors: int) -> tuple[int, int, int]:
        tasks = math.prod(outer) * (count // vectors)
        return -(-tasks // cores) * max(vectors, _WAITS), -min(tasks, cores), -vectors

    return min(divisors(count, _VECTORS), key=preference)


def _is_to_several(stage: Stage, epilogue: Stage | None) -> bool:
    return stage.is_reduction and not is_one_sum(stage)


SEVERAL_RESULTS = Family("several results", _schedule, _is_to_several)
SEVERAL_SIDE_BY_SIDE = Family("several results side by side", _side_by_side, _is_to_several)


def _lanes_of_any(axes: Sequence[StageAxis], run: int, width: int) -> int:
    """Lanes of a vector along the last axes: whole registers, up to two of them, else any part of one."""
    choices = divisors(math.prod(axis.extent or 1 for axis in axes[-run:]), 2 * width) if run else ()
    whole = [lanes for lanes in choices if lanes % width == 0]
    return max(whole or [lanes for lanes in choices if lanes < width], default=1)


def _lanes_of_last(axes: Sequence[StageAxis], count: int, width: int) -> int:
    """Lanes of a vector along so many of the last axes."""
    return vector_lanes(math.prod(axis.extent or 1 for axis in axes[-count:]), width)
