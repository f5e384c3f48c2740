"""Rounding to bytes, and back to floats, in few instructions.

In: a PrimFunc that quantises floats, and may make floats of these bytes again. Out: the same values (but the sign of a
zero, and what becomes of NaN) by fewer steps: what is bounded before it is rounded is rounded by adding a large number,
whose last bits are the byte then; a byte that becomes a float again needs none of its zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx

from eqsat_layout.targets.schedules.lets import f32
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import structural_map, structural_map_outermost

_ROUNDER: Final = 1.5 * 2**23
"""Floats beside this one are whole numbers, halves go to even ones, and its last 8 bits are 0."""
_BYTES: Final = {"uint8": (0.0, 255.0), "int8": (-128.0, 127.0)}


def quantise_in_few_steps(func: Any) -> Any:
    """``func`` with such casts."""
    body = structural_map_outermost(func.body, (tirx.Cast, _restored))
    body = structural_map(body, (tirx.Cast, _rounded))
    return func if body.same_as(func.body) else func.with_body(body)


@dataclass(frozen=True)
class _Quantised:
    """``round(value) + zero``, no less than ``low`` and no more than ``high``. ``zero``: of integers, or None."""

    value: Any
    zero: Any
    low: float
    high: float

    @property
    def bounded(self) -> Any:
        """``value`` within what its rounded sum with ``zero`` may be."""
        low, high = f32(self.low), f32(self.high)
        if self.zero is not None:
            zero = self.zero.astype("float32")
            low, high = low - zero, high - zero
        return tirx.max(tirx.min(self.value, high), low)


def _restored(cast: Any) -> Any:
    """A float of a quantised value less its zero point; None where it is none."""
    whole = cast.value
    if str(cast.ty.dtype) != "float32" or str(whole.ty.dtype) != "int32":
        return None
    byte, zero = (whole.a, whole.b) if isinstance(whole, tirx.Sub) else (whole, None)
    found = _quantised(byte.value) if isinstance(byte, tirx.Cast) else None
    if found is None or not _is_same(found.zero, zero):
        return None
    rounded = tirx.round(found.bounded)
    return structural_map_outermost(rounded, (tirx.Cast, _restored))


def _is_same(zero: Any, other: Any) -> bool:
    """Of two zero points, or what is cast to one, whether they are the same."""
    if zero is None or other is None:
        return zero is other
    own = other.value if isinstance(other, tirx.Cast) else other
    return bool(tvm_ffi.structural_equal(zero, own))


def _rounded(cast: Any) -> Any:
    found = _quantised(cast)
    if found is None:
        return cast
    bits = tirx.reinterpret("int32", found.bounded + f32(_ROUNDER))
    return (bits if found.zero is None else bits + found.zero.astype("int32")).astype(str(cast.ty.dtype))


def _quantised(cast: Any) -> _Quantised | None:
    """What a cast to bytes is, if it is of a float that was rounded and bounded."""
    bounds = _BYTES.get(str(cast.ty.dtype)) if isinstance(cast, tirx.Cast) else None
    if bounds is None:
        return None
    low, high, value = -float("inf"), float("inf"), cast.value
    while isinstance(value, (tirx.Min, tirx.Max)) and isinstance(value.b, tirx.FloatImm):
        bound = float(value.b.value)
        low, high = (low, min(high, bound)) if isinstance(value, tirx.Min) else (max(low, bound), high)
        value = value.a
    if not (bounds[0] <= low <= high <= bounds[1] and low.is_integer() and high.is_integer()):
        return None
    for rounded, zero in ((value.a, value.b), (value.b, value.a)) if isinstance(value, tirx.Add) else ((value, None),):
        if is_call(rounded, "tirx.round") and str(rounded.ty.dtype) == "float32" and _is_zero_point(zero):
            return _Quantised(rounded.args[0], None if zero is None else zero.value, low, high)
    return None


def _is_zero_point(zero: Any) -> bool:
    """None, or a cast of a byte."""
    is_load = isinstance(zero, tirx.Cast) and isinstance(zero.value, ir.TensorLoad)
    return zero is None or (is_load and str(zero.value.ty.dtype) in _BYTES)
