"""The cost model of a CPU before anything is measured.

In: the machine. Out: a :class:`Roofline`.
"""

from __future__ import annotations

from typing import Final

from eqsat_layout.cost.model import Roofline
from eqsat_layout.cost.vectorise import SLIDING
from eqsat_layout.targets.cpu.amx.instructions import ROW_BYTES as TILE_ROW_BYTES
from eqsat_layout.targets.cpu.dot_products import BYTES_OF_WORD
from eqsat_layout.targets.cpu.machine import CpuMachine

_REWRITE: Final = 0.8  # of the bandwidth of a kernel that streams is left to one that permutes, in registers
_GATHER: Final = 1.5  # cycles of an element that is copied by itself (measured on Zen 4, also as AVX2: .3 to 1.3)
PHASE: Final = 1.0  # of one that is copied to its phase (measured on AVX2: .6 of every second one, 1.1 of every fourth)
_SLIDING: Final = 0.92  # of the peak where vectors that are shorter than a cache line slide (measured on AVX2)
_HALVES_SLIDING: Final = 0.8  # where they are as long, but taken in halves (measured on Zen 4: .75 to .9)
_HIDDEN: Final = 0.8  # of the time that weights come from memory is not hidden


def default_costs(machine: CpuMachine) -> Roofline:
    """The roofline of one core of a CPU, as proportions matter and not seconds; data come from the last-level cache."""
    is_short, in_halves = (size < machine.line_bytes for size in (machine.vector_bytes, machine.unit_bytes))
    bandwidth = machine.last_level_bandwidth
    return Roofline(
        bandwidth=bandwidth,
        rewrite_bandwidth=_REWRITE * bandwidth,
        flops=2 * machine.vectors_per_cycle * machine.lanes(4) * machine.clock,
        launch=machine.kernel_launch,
        gather=_GATHER / machine.clock,
        phase=PHASE / machine.clock,
        sliding=_SLIDING if is_short else _HALVES_SLIDING if in_halves else SLIDING,
        weights=_HIDDEN * bandwidth / machine.memory_bandwidth,
        vector_bytes=min(machine.vector_bytes, machine.unit_bytes),  # shorter ones are as fast as what units take
        word=BYTES_OF_WORD if machine.byte_products else 1,
        tile_row=TILE_ROW_BYTES if machine.matrix_bytes else 0,
    )
