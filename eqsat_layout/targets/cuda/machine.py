"""What costs and plans need to know of a GPU.

In: nothing. Out: plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
    flops: Mapping[str, float]
    launch_seconds: float
    warpgroups: bool = False
    of_floats: str = "float32"
