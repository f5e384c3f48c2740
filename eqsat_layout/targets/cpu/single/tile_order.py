"""The order of the loops over tiles, outside of them.

In: a stage, its tiles and what it reads. Out: axes and loops, outermost first, and which operands stay in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.tiles import RegisterTile
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.targets.schedules.stages import Stage, divisors
from eqsat_layout.tir.structural import substitute

_RUN = 4096  # bytes of results that lie side by side are enough
_RUN_SHARE, _L1_SHARE = 0.25, 0.75  # of the caches are for what such a run reads
_SHARING = 2  # rank of an axis along which the load in vectors is read again


def in_order_of_results(
    sch: Any, outer: Sequence[Any], tile: RegisterTile, stage: Stage, machine: CpuMachine
) -> list[Any]:
    """The loops over tiles, as :mod:`~eqsat_layout.targets.cpu.single.tile_loops` splits them, put in order with a run
    of tiles innermost whose results lie side by side.

    In the other order results go to memory in short pieces far from each other, and the core waits for each: 200 rows
    of 4x75x75 took three times as long. Tiles of many steps store little, and rows for them are prefetched.
    """
    loops, order, ranks = list(outer), outer_order(stage), _ranks(stage)
    moving = [place for place, loop in enumerate(outer) if loop_iterations(sch, loop) > 1]
    held = [place for place in moving if ranks[order[place]] == _SHARING - 1]
    if not held or ranks[order[moving[-1]]] != _SHARING or None in stage.write.shape:
        return loops
    made = math.prod(loop_iterations(sch, loop) for loop in outer) * tile.lanes * math.prod(tile.sizes)
    if made * stage.write.element_bytes < _RUN_SHARE * machine.l2_working_set:  # they stay in the caches in any order
        return loops
    steps = [_step_of_results(stage, tile, position) for position in order]
    run = steps[held[-1]] * stage.write.element_bytes
    panel = tile.lanes * tile.sizes[tile.vector] * stage.steps * _held_load(stage).element_bytes
    if panel > machine.l1_working_set:
        return loops
    most, few = _most_held(stage, machine), list[Any]()
    for place in reversed(held):
        if steps[place] >= steps[moving[-1]]:
            break
        extent = loop_iterations(sch, loops[place])
        fit = divisors(extent, max(1, int(most / panel)))
        size = next((count for count in fit if count * run >= _RUN), fit[-1])
        if size == 1:
            break
        loops[place], inside = sch.split(loops[place], [None, size])
        few.insert(0, inside)
        run, panel = run * size, panel * size
        if size < extent:
            break
    loops += few
    sch.reorder(*loops)
    return loops


def _most_held(stage: Stage, machine: CpuMachine) -> float:
    """Bytes that a run of tiles may read of the load in vectors, again and again. Vectors that lie in two lines of the
    cache each should come from L1 (64 channels of 37x37 from L2: 1.4 times as long)."""
    held, half = _held_load(stage), machine.line_bytes // 2  # rows of 56 floats are as good as of 64
    strides = [(held.stride(axis.var) or 0) * held.element_bytes for axis in stage.axes]
    is_aligned = not any(abs(stride) >= half and stride % half for stride in strides)
    return _RUN_SHARE * machine.l2_working_set if is_aligned else _L1_SHARE * machine.l1_working_set


def _step_of_results(stage: Stage, tile: RegisterTile, position: int) -> float:
    """Elements from the results of a tile to those of the next one along an axis of them, the first two at least: the
    last of tiles may overlap the one before."""
    size = tile.sizes[position] * (tile.lanes if position == tile.vector else 1)
    first = {axis.var: tirx.const(0, axis.var.ty.dtype) for axis in stage.spatial}
    second = first | {stage.spatial[position].var: tirx.const(size, stage.spatial[position].var.ty.dtype)}
    start, end = (as_int(tvm.sym.Analyzer().simplify(substitute(stage.write.place, own))) for own in (first, second))
    return math.inf if start is None or end is None or end <= start else end - start


def outer_order(stage: Stage) -> list[int]:
    """Order of the tiles: axes of every load first (batch), then those of the load in vectors, which stays in cache."""
    ranks = _ranks(stage)
    return sorted(range(len(ranks)), key=lambda position: (ranks[position], position))


def panel_axes(stage: Stage) -> int:
    """How many axes come first in that order: all tiles along the others read the same of the load in vectors."""
    return sum(rank < _SHARING for rank in _ranks(stage))


def _held_load(stage: Stage) -> StageAccess:
    """The load in vectors, which stays in cache."""
    return stage.vector_load or stage.loads[0]


def _ranks(stage: Stage) -> list[int]:
    loads = list(stage.loads)
    if len(loads) < 2:
        return [0] * len(stage.spatial)
    held = _held_load(stage)

    def rank(var: Any) -> int:
        if all(load.uses(var) for load in loads):
            return 0
        return 1 if held.uses(var) else _SHARING

    return [rank(axis.var) for axis in stage.spatial]


def loop_iterations(sch: Any, loop: Any) -> int:
    """Iterations of a loop; 64 if symbolic."""
    extent = lookups.get(sch, loop).extent
    return int(extent) if hasattr(extent, "value") else 64
