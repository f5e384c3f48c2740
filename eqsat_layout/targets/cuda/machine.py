"""What costs and plans need to know of a GPU.

In: nothing. Out: plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

REGISTERS: Final = 1 << 16
"""Of a multiprocessor, of every architecture that we know (CUDA programming guide, technical specifications)."""
_PARTS, _LANES, _UNIT = 4, 32, 8


def blocks_by_registers(registers: int, threads: int, of_all: int = REGISTERS) -> int:
    """Blocks of so many threads, each with ``registers``, that a multiprocessor has the registers for.

    It has four parts, each with a quarter of them; a warp lies in one part, and has registers by the eight.
    """
    rounded = -(-registers // _UNIT) * _UNIT
    return of_all // _PARTS // (rounded * _LANES) * _PARTS // -(-threads // _LANES)


@dataclass(frozen=True)
class CudaMachine:
    """``flops``: per second on tensor cores, by the dtype of the operands (``tensorfloat32`` for tf32).

    ``registers``: of a multiprocessor. ``warpgroups``: four warps may multiply together (wgmma); the code is for that
    generation only. ``launch_seconds``: between the ends of two kernels that do nothing. ``of_floats``: the arithmetic
    that products of float32 are done by, "float32" or "tensorfloat32".
    """

    arch: str
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes: int
    registers: int
    l2_bytes: int
    bandwidth: float
    flops: Mapping[str, float] = field(hash=False)
    launch_seconds: float
    warpgroups: bool = False
    of_floats: str = "float32"
