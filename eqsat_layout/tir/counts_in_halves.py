"""Counts of elements that are worked out in a narrow float, and then widened.

In: a PrimFunc. Out: the same, in which what is made of numbers and sizes alone is worked out in the type that it is
widened to. TVM's instance norm multiplies extents as halves: of an image of 256 x 256 that is infinite, so all its
results were wrong.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.tir.structural import nodes_of, structural_map_outermost

_NARROW: Final = ("float16", "bfloat16")
_WIDE: Final = ("float32", "float64")


def with_wide_counts(function: Any) -> Any:
    """See above; ``function`` itself where it has none."""
    body = structural_map_outermost(function.body, (tirx.Cast, _widened))
    return function if body.same_as(function.body) else function.with_body(body)


def _widened(cast: Any) -> Any:
    """``None`` where it is no cast of a count."""
    dtype = str(cast.ty.dtype)
    is_count = isinstance(cast.value, tirx.Mul) and str(cast.value.ty.dtype) in _NARROW and dtype in _WIDE
    return _count(cast.value, dtype) if is_count else None


def _count(value: Any, dtype: str) -> Any:
    if isinstance(value, tirx.FloatImm):
        return tirx.FloatImm(dtype, value.value)
    if isinstance(value, tirx.Cast) and str(value.value.ty.dtype).startswith("int"):
        return None if nodes_of(value.value, tvm.ir.TensorLoad, tvm.ir.Call) else tirx.Cast(dtype, value.value)
    if isinstance(value, tirx.Mul):
        parts = [_count(part, dtype) for part in (value.a, value.b)]
        return None if None in parts else tirx.Mul(*parts)
    return None
