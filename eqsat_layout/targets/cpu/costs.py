"""The cost model of a CPU before anything is measured.

In: the machine. Out: a :class:`Roofline`.
"""

from __future__ import annotations

from eqsat_layout.cost.model import Roofline
from eqsat_layout.targets.cpu.machine import Machine

_FLOPS_PER_BYTE = 3e9
"""Peak arithmetic of one core per byte of its vectors: two fused multiply-adds of 4 bytes at 3 GHz would be 3e9."""


def default_costs(machine: Machine) -> Roofline:
    """The roofline of a CPU by its vector width; one core, as proportions matter and not seconds."""
    return Roofline(flops=_FLOPS_PER_BYTE * machine.vector_bytes, vector_bytes=machine.vector_bytes)
