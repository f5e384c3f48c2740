"""Loops in parallel and in vectors, as all families make them.

In: a schedule and loops of it. Out: the schedule changed in place; the numbers of lanes that fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.core_sharing import cut_into, pieces_of
from eqsat_layout.targets.cpu.model.vectors import vector_lanes
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations, outer_order
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage

SMALL = 4096
"""Iterations below which starting threads costs more than it saves."""
_TASKS = 8  # for each core, so that one that is held up does not hold up all


def in_parallel(sch: Any, loops: Sequence[Any], machine: CpuMachine, stage: Stage) -> None:
    """Fuses leading loops until they make enough tasks, and runs those in parallel."""
    if loops:
        _share_first(sch, loops, machine, stage, _TASKS * machine.cores)


def parallel_pieces(sch: Any, outer: Sequence[Any], machine: CpuMachine, stage: Stage) -> Any:
    """Parallel over pieces of an axis, where cores are to share it, else over leading tiles (in their order)."""
    order, pieces = outer_order(stage), pieces_of(stage, machine)
    for place in map(order.index, pieces.axes):
        if math.prod(loop_iterations(sch, loop) for loop in outer[:place]) == 1:
            break  # they take pieces anyway
        count = cut_into(loop_iterations(sch, outer[place]), pieces.count, machine)
        if count < 2:
            continue
        piece, rest = sch.split(outer[place], [count, None])
        outer = [piece, *outer[:place], rest, *outer[place + 1 :]]
        sch.reorder(*outer)
        wanted = count if count % machine.cores == 0 else None
        return parallel_tiles(sch, outer, machine, stage, wanted)
    return parallel_tiles(sch, outer, machine, stage)


def parallel_tiles(sch: Any, outer: Sequence[Any], machine: CpuMachine, stage: Stage, wanted: int | None = None) -> Any:
    """Parallel over leading tiles, ``wanted`` or more; at least one loop stays inside. The innermost one comes back."""
    wanted = wanted or _TASKS * machine.cores
    is_few = math.prod(loop_iterations(sch, loop) for loop in outer[:-1]) < wanted
    fused, taken = _share_first(sch, outer if is_few else outer[:-1], machine, stage, wanted)
    return fused if taken == len(outer) else outer[-1]


def _share_first(sch: Any, loops: Sequence[Any], machine: CpuMachine, stage: Stage, wanted: int) -> tuple[Any, int]:
    """The first loops as one of ``wanted`` tasks, or all of them; and how many they are. Parallel if that pays."""
    taken, tasks = 0, 1
    while taken < len(loops) and (taken == 0 or tasks < wanted):
        tasks *= loop_iterations(sch, loops[taken])
        taken += 1
    fused = sch.fuse(*loops[:taken]) if taken > 1 else loops[0]
    if stage.domain >= SMALL and machine.cores > 1:
        sch.parallel(fused)
    return fused, taken


def in_vectors(sch: Any, loop: Any, width: int) -> list[Any]:
    """The loop in vectors, where any divides it: the loops outside of them, if so."""
    lanes = vector_lanes(loop_iterations(sch, loop), width)
    if lanes < 2:
        return []
    outer, lane = sch.split(loop, [None, lanes])
    sch.vectorize(lane)
    return [outer]


def run_of(axes: Sequence[StageAxis], accesses: Sequence[StageAccess], *, joins: bool = True) -> int:
    """How many of the last axes are one run, of equal strides, in every access; just one if none ``joins`` another."""
    if axes[-1].extent is None:
        return 0
    run = 1
    while joins and run < len(axes):
        outer, inner = axes[-run - 1], axes[-run]
        strides = [(access.stride(outer.var), access.stride(inner.var)) for access in accesses]
        if outer.extent is None or not all(_joins(*pair, inner.extent) for pair in strides):
            break
        run += 1
    return run


def _joins(outer: int | None, inner: int | None, extent: int | None) -> bool:
    return outer is not None and inner is not None and extent is not None and outer == inner * extent


def leading_axes(stage: Stage) -> int:
    """Number of spatial axes before the first reduction axis."""
    count = 0
    for axis in stage.axes:
        if axis.reduce:
            break
        count += 1
    return count
