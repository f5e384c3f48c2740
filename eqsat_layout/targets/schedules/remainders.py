"""Remainders of floats as arithmetic, which LLVM turns into vectors; it calls ``fmodf`` for each element else.

In: a PrimFunc. Out: the same with remainders of float32 from quotients in float64. A quotient of two float32 below 2^29
is on the right side of every whole number there, and its product with the divisor has no more than 53 bits: remainders
are exact. Those of larger quotients are rounded.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from eqsat_layout.targets.schedules.lets import f32, named
from eqsat_layout.tir.structural import mapped_body


def short_remainders(func: Any) -> Any:
    """``func`` itself where there are none."""
    return mapped_body(func, (tirx.Mod, _shortened))


def _shortened(rest: Any) -> Any:
    if str(rest.ty.dtype) != "float32":
        return rest
    return named(rest.a, lambda a: named(rest.b, lambda b: _remainder(a, b)))


def _remainder(a: Any, b: Any) -> Any:
    """Of the sign of ``a``, which is its own remainder by infinity."""
    x, y = tirx.Cast("float64", a), tirx.Cast("float64", b)
    rest = tirx.Cast("float32", x - tirx.trunc(x / y) * y)
    is_own = tirx.And(tirx.EQ(tirx.abs(b), f32(math.inf)), tirx.abs(a) < f32(math.inf))
    return tirx.Select(is_own, a, rest)
