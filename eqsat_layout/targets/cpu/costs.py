"""What a target offers to the choice of layouts: block sizes, and the constants of its cost model.

In: a checked target. Out: sizes of channel blocks, and a :class:`Roofline`.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.cost.model import Roofline
from eqsat_layout.targets.cpu.machine import machine_of

_BLOCKS = (4, 8, 16)  # of channels, as conv2d kernels of other packages have them
_REWRITE = 0.48  # of the bandwidth of a kernel that streams is left to one that permutes
_GATHER = 4.5  # cycles of an element that is copied by itself
_HIDDEN = 0.8  # of the time that weights come from memory is not hidden


def channel_blocks(target: Any) -> tuple[int, ...]:
    """The sizes of blocks that channels may be cut into, ascending: those that fill a vector of 4-byte elements."""
    lanes = machine_of(target).lanes(4)
    return tuple(block for block in _BLOCKS if block >= lanes)


def default_costs(target: Any) -> Roofline:
    """The roofline of one core of a CPU, as proportions matter and not seconds; data come from the last-level cache."""
    machine = machine_of(target)
    bandwidth = machine.last_level_bandwidth
    return Roofline(
        bandwidth=bandwidth,
        rewrite_bandwidth=_REWRITE * bandwidth,
        flops=2 * machine.fma_units * machine.lanes(4) * machine.clock,
        launch=machine.kernel_launch,
        gather=_GATHER / machine.clock,
        weights=_HIDDEN * bandwidth / machine.memory_bandwidth,
        vector_bytes=machine.vector_bytes,
    )
