"""What a target offers to the choice of layouts: block sizes, and the constants of its cost model (targets room).

In: a checked target. Out: sizes of channel blocks, and a :class:`Roofline`.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.cost.model import Roofline
from eqsat_layout.targets.cpu.machine import machine_of

_BLOCKS = (4, 8, 16)
_FLOPS_PER_BYTE = 3e9
"""Peak arithmetic of one core per byte of its vectors: two fused multiply-adds of 4 bytes at 3 GHz would be 3e9."""


def channel_blocks(target: Any) -> tuple[int, ...]:
    """The sizes of blocks that channels may be cut into, ascending: those that fill a vector of 4-byte elements."""
    lanes = machine_of(target).lanes(4)
    return tuple(block for block in _BLOCKS if block >= lanes)


def default_costs(target: Any) -> Roofline:
    """The roofline of a CPU by its vector width; one core, as proportions matter and not seconds."""
    machine = machine_of(target)
    return Roofline(flops=_FLOPS_PER_BYTE * machine.vector_bytes, vector_bytes=machine.vector_bytes)
