"""Sets of L2: lines whose distance is a multiple of a power of two share few of them, however large the cache is.

In: a load of a reduction. Out: whether what one element of the result reads drives itself out of L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis

_REMEMBERED: Final = 1024  # loads
_MOST_STEPS: Final = 1 << 16  # that are looked at: longer reductions are longer than L2


def overflows_sets(load: StageAccess, reduced: Sequence[StageAxis], machine: CpuMachine) -> bool:
    """Of the lines that a reduction reads for one element, more lie in the same set of L2 than it has ways.

    The next element reads them from the last-level cache again, though all of them were few. Images of 256x256, the
    channels of a pixel 256 KiB apart, are read so.
    """
    if load.buffer_bytes <= machine.l2_bytes:  # as many in each set
        return False
    moving = [axis for axis in reduced if axis.extent != 1 and load.uses(axis.var)]
    strides = [load.stride(axis.var) for axis in moving]
    steps = tuple(
        (stride * load.element_bytes, axis.extent)
        for stride, axis in zip(strides, moving, strict=True)
        if stride is not None and axis.extent is not None
    )
    if len(steps) < len(moving) or math.prod(extent for _, extent in steps) > _MOST_STEPS:
        return False
    return _most_in_one_set(steps, machine.line_bytes, machine.l2_bytes // machine.l2_ways) > machine.l2_ways


@lru_cache(_REMEMBERED)
def _most_in_one_set(steps: tuple[tuple[int, int], ...], line_bytes: int, way_bytes: int) -> int:
    """The most lines in one set of those at the sums of so many multiples of each step."""
    places = np.zeros(1, np.int64)
    for step, extent in steps:
        places = np.add.outer(places, step * np.arange(extent)).reshape(-1)
    lines = np.unique(places // line_bytes)
    return int(np.unique(lines % max(1, way_bytes // line_bytes), return_counts=True)[1].max())
