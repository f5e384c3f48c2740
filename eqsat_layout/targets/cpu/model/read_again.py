"""What a reduction reads from memory more than once, as the last-level cache does not hold its data.

In: one of its loads and the machine. Out: bytes, as many as could be read in one piece in that time.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import register_tile
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import Stage

JUMP: Final = 256.0
"""Bytes that could be moved in the time of going on elsewhere."""


def read_again(stage: Stage, load: StageAccess, machine: CpuMachine) -> float:
    """Beside the first time: all of the data for every tile along what does not depend on them, and for every place of
    a window from one to the next of which is too far. Pieces are as short as a tile, so nothing prefetches them.
    """
    tile = register_tile(stage, machine) if stage.is_reduction and _is_far(load, machine) else None
    if tile is None or load is stage.vector_load:
        return 0.0
    sizes = [size * (tile.lanes if place == tile.vector else 1) for place, size in enumerate(tile.sizes)]
    axes = list(zip(stage.spatial, sizes, strict=True))
    times = math.prod(math.ceil((axis.extent or 1) / size) for axis, size in axes if not load.uses(axis.var))
    windows = itertools.product(stage.spatial, stage.reduced)
    overlaps = math.prod(_overlap(load, *pair, machine) for pair in windows)
    strides = [load.stride(axis.var) or 0 for axis, _ in axes]
    nearest = min((abs(stride) for stride in strides if stride), default=1)
    run = math.prod(size for (_, size), stride in zip(axes, strides, strict=True) if abs(stride) == nearest)
    return load.buffer_bytes * (times * overlaps - 1) * (1 + JUMP / (run * nearest * load.element_bytes))


def _is_far(load: StageAccess, machine: CpuMachine) -> bool:
    return load.buffer_bytes > machine.last_level_working_set


def _overlap(load: StageAccess, place: StageAxis, step: StageAxis, machine: CpuMachine) -> float:
    """How often an element is read from memory while a window moves along an axis of the result."""
    along, apart = (abs(load.stride(axis.var) or 0) for axis in (place, step))
    if not (along and apart and step.extent and place.extent and load.moves_along_both(place.var, step.var)):
        return 1.0
    window = step.extent * apart
    around = load.buffer_bytes / (place.extent * along)  # times as much is read on the way along other axes
    return max(1.0, window / along) if window * around > machine.last_level_working_set else 1.0
