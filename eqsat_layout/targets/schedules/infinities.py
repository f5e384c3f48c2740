"""Reductions that begin with an infinity, for TVM's ``rfactor``, which knows the largest finite numbers only.

In: a PrimFunc. Out: the same with infinities and largest numbers in each other's places, and its schedule with these
where they were.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from tvm import s_tir, tirx

from eqsat_layout.tir.structural import mapped_body, nodes_of


def begins_with_infinity(func: Any) -> bool:
    """Some reduction of it does."""
    inits = [block.init for block in nodes_of(func.body, s_tir.SBlock) if block.init is not None]
    return any(math.isinf(float(number)) for init in inits for number in nodes_of(init, tirx.FloatImm))


def infinities_exchanged(func: Any) -> Any:
    """``func`` with the infinities of every dtype as its largest numbers, and these as infinities."""
    return mapped_body(func, (tirx.FloatImm, _exchanged))


def _exchanged(number: Any) -> Any:
    dtype, value = str(number.ty.dtype), float(number)
    if math.isinf(value):
        return tirx.FloatImm(dtype, math.copysign(_largest(dtype), value))
    return tirx.FloatImm(dtype, math.copysign(math.inf, value)) if abs(value) == _largest(dtype) else number


@cache
def _largest(dtype: str) -> float:
    return float(tirx.max_value(dtype))
