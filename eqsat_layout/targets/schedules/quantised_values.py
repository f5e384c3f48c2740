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
from eqsat_layout.tir.structural import nodes_of, structural_map, structural_map_outermost

_ROUNDER: Final = 1.5 * 2**23
"""Floats beside this one are whole numbers, halves go to even ones, and its last 8 bits are 0."""
_MANY: Final = 1024
"""Zero points are smaller."""
_TO_EVEN: Final = ("tirx.round", "tirx.nearbyint")
"""Roundings that give the even one of two numbers that are as near."""
_BYTES: Final = {"uint8": (0.0, 255.0), "int8": (-128.0, 127.0)}


def quantise_in_few_steps(func: Any) -> Any:
    """``func`` with such casts."""
    body = structural_map_outermost(func.body, (tirx.Cast, _restored))
    body = structural_map(body, (tirx.Cast, _rounded))
    return func if body.same_as(func.body) else func.with_body(body)


def quantising(func: Any) -> list[Any]:
    """The casts to bytes of ``func`` that quantise, and the roundings in them."""
    found = [(cast, _quantised(cast)) for cast in nodes_of(func.body, tirx.Cast)]
    return [node for cast, own in found if own is not None for node in (cast, own.whole, own.rounded)]


@dataclass(frozen=True)
class _Quantised:
    """``rounded + zero``, no less than ``low`` and no more than ``high``. ``zero``: a number, or a byte. ``whole``:
    ``rounded``, or the integer that is made of it to be added up."""

    whole: Any
    rounded: Any
    zero: Any
    low: float
    high: float

    @property
    def value(self) -> Any:
        return self.rounded.args[0]

    @property
    def bounded(self) -> Any:
        """``value`` within what its rounded sum with ``zero`` may be."""
        zero = f32(self.zero) if isinstance(self.zero, int) else self.zero.astype("float32")
        low, high = (f32(bound) - zero for bound in (self.low, self.high))
        return tirx.max(tirx.min(self.value, high), low)


def _restored(cast: Any) -> Any:
    """A float of a quantised value less its zero point; None where it is none."""
    whole = cast.value
    if str(cast.ty.dtype) != "float32" or str(whole.ty.dtype) != "int32":
        return None
    byte, zero = (whole.a, _zero_point(whole.b)) if isinstance(whole, tirx.Sub) else (whole, 0)
    found = _quantised(byte.value) if isinstance(byte, tirx.Cast) else None
    if found is None or zero is None or not _is_same(found.zero, zero):
        return None
    rounded = tirx.round(found.bounded)
    return structural_map_outermost(rounded, (tirx.Cast, _restored))


def _is_same(zero: Any, other: Any) -> bool:
    if isinstance(zero, int) or isinstance(other, int):
        return bool(zero == other) if isinstance(zero, int) and isinstance(other, int) else False
    return bool(tvm_ffi.structural_equal(zero, other))


def _rounded(cast: Any) -> Any:
    found = _quantised(cast)
    if found is None:
        return cast
    bits = tirx.reinterpret("int32", found.bounded + f32(_ROUNDER))
    zero = tirx.const(found.zero, "int32") if isinstance(found.zero, int) else found.zero.astype("int32")
    return (bits + zero).astype(str(cast.ty.dtype))


def _quantised(cast: Any) -> _Quantised | None:
    """What a cast to bytes is, if it is of a float that was rounded and bounded."""
    bounds = _BYTES.get(str(cast.ty.dtype)) if isinstance(cast, tirx.Cast) else None
    if bounds is None:
        return None
    low, high, value = -float("inf"), float("inf"), cast.value
    while isinstance(value, (tirx.Min, tirx.Max)) and isinstance(value.b, tirx.FloatImm | tirx.IntImm):
        bound = float(value.b.value)
        low, high = (low, min(high, bound)) if isinstance(value, tirx.Min) else (max(low, bound), high)
        value = value.a
    if not (bounds[0] <= low <= high <= bounds[1] and low.is_integer() and high.is_integer()):
        return None
    is_moved = isinstance(value, tirx.Add)
    for whole, zero in ((value.a, value.b), (value.b, value.a)) if is_moved else ((value, f32(0)),):
        rounded, own = whole.value if _is_integer(whole) else whole, _zero_point(zero)
        if any(is_call(rounded, name) for name in _TO_EVEN) and str(rounded.ty.dtype) == "float32" and own is not None:
            return _Quantised(whole, rounded, own, low, high)
    return None


def _is_integer(whole: Any) -> bool:
    """Made one of a float before it is bounded, wide enough for a sum with a zero point."""
    return isinstance(whole, tirx.Cast) and str(whole.ty.dtype) in ("int32", "int64")


def _zero_point(zero: Any) -> Any:
    """The whole number of a byte that is known, or the byte that is cast; None where ``zero`` is neither."""
    value = zero.value if isinstance(zero, tirx.Cast) else zero
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return int(value.value) if float(value.value).is_integer() and abs(value.value) < _MANY else None
    is_byte = isinstance(zero, tirx.Cast) and isinstance(value, ir.TensorLoad) and str(value.ty.dtype) in _BYTES
    return value if is_byte else None
