"""How many partial results a reduction of rows has in the lanes of a vector.

In: a stage that reduces the last axis of what it reads. Out: their number.
"""

from __future__ import annotations

import math

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.stages import Stage


def row_lanes(stage: Stage, machine: CpuMachine) -> int:
    """Partial results side by side, a power of two; 0: no vector divides the row, or steps are done in order.

    Refused for what is no reduction along memory.
    """
    width = 1 if machine.is_exact else machine.lanes(stage.write.element_bytes)
    *outer, last = stage.reduced
    if stage.is_product or last.extent is None:
        raise Refused("no sum along one axis")
    if any(load.stride(last.var) not in (0, 1) for load in stage.loads):
        raise Refused("the axis does not run along memory")
    lanes = math.gcd(last.extent, width)
    lanes = lanes if 4 * lanes >= width and lanes > 1 else 0
    if outer and not lanes and width > 1:
        raise Refused("rows of several axes, the last of which no vector divides")
    return lanes
