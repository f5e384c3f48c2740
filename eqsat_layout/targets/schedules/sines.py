"""Sine and cosine as arithmetic, right for every float32.

In: an operand. Out: an expression. The angle is brought to [-pi/4, pi/4] and the number of its quarter in float64, far
angles in whole numbers: a turn is lost by no product. The parts on 64 bits take half the lanes of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.schedules.lets import f32, i32, named, polynomial

_QUARTERS: Final = (1.570796325802803, 9.920935739593517e-10, 5.721188726109832e-18)
"""pi / 2 in parts of 27 bits, so that products with 26 bits are exact."""
_SHIFT: Final = 1.5 * 2.0**52
"""A double that is added to it is rounded to an integer."""
_FAR_BITS: Final = 152 << 23
"""Of 2^25. Angles from it on are 24 bits times 2^k, with k from 2."""
_SCALE_OF_BITS: Final = 150
_WORD: Final = 28
_TURN: Final = (
    *(0x28BE60DB939105, 0xB9391054A7F09D, 0x4A7F09D5F47D4D),
    *(0x5F47D4D377036D, 0x377036D8A5664F, 0x8A5664F10E4107),
)
"""1 / (2 pi): two words of 28 bits each, every word the second of one and the first of the next."""
_UNIT: Final = 62
"""Fractions of a turn are multiples of 2^-62."""

_SINE: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
"""Of sin(r) = r + r^3 p(r^2) for |r| <= pi / 4 (Cephes, sinf)."""
_COSINE: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
"""Of cos(r) = 1 - r^2 / 2 + r^4 p(r^2) for |r| <= pi / 4 (Cephes, cosf)."""
_MAGNITUDE: Final = (1 << 31) - 1
_MANTISSA: Final = (1 << 23) - 1
_INFINITY_BITS: Final = 255 << 23


def sine(x: Any) -> Any:
    """Odd: -0.0 is its own sine."""

    def of_quarter(bits: Any, n: Any, r: Any) -> Any:
        negative = ((n & i32(2)) << i32(30)) ^ (bits - (bits & i32(_MAGNITUDE)))
        return _with_sign(tirx.Select(tirx.EQ(n & i32(1), i32(0)), _sine_near(r), _cosine_near(r)), negative)

    return _of_angle(x, of_quarter)


def cosine(x: Any) -> Any:
    def of_quarter(bits: Any, n: Any, r: Any) -> Any:
        negative = ((n + i32(1)) & i32(2)) << i32(30)
        return _with_sign(tirx.Select(tirx.EQ(n & i32(1), i32(0)), _cosine_near(r), _sine_near(r)), negative)

    return _of_angle(x, of_quarter)


def _with_sign(value: Any, sign: Any) -> Any:
    return tirx.reinterpret("float32", tirx.reinterpret("int32", value) ^ sign)


def _of_angle(x: Any, of_quarter: Callable[[Any, Any, Any], Any]) -> Any:
    """``of_quarter`` of the bits of x, the quarter and the rest of its size. NaN for what is not finite."""

    def of_bits(bits: Any) -> Any:
        size = bits & i32(_MAGNITUDE)
        found = named(size, lambda size: of_size(bits, size))
        return tirx.Select(size < i32(_INFINITY_BITS), found, f32(math.nan))

    def of_size(bits: Any, size: Any) -> Any:
        is_far = size >= i32(_FAR_BITS)
        near = tirx.Cast("float64", tirx.reinterpret("float32", size))

        def of_near(near: Any, shifted: Any) -> Any:
            return named(shifted - _d(_SHIFT), lambda near_quarter: of_rounded(near, near_quarter))

        def of_rounded(near: Any, near_quarter: Any) -> Any:
            rest = near
            for part in _QUARTERS:
                rest = rest - near_quarter * _d(part)
            return named(_far_fraction(size), lambda far: of_both(far, near_quarter, rest))

        def of_both(far: Any, near_quarter: Any, near_rest: Any) -> Any:
            far_quarter = (far + _l(1 << (_UNIT - 3))) >> _l(_UNIT - 2)
            far_rest = tirx.Cast("float64", far - (far_quarter << _l(_UNIT - 2))) * _d(2 * math.pi / 2.0**_UNIT)
            n = tirx.Select(is_far, tirx.Cast("int32", far_quarter), tirx.Cast("int32", near_quarter))
            r = tirx.Select(is_far, tirx.Cast("float32", far_rest), tirx.Cast("float32", near_rest))
            return named(n, lambda n: named(r, lambda r: of_quarter(bits, n, r)))

        return named(
            near, lambda near: named(near * _d(2 / math.pi) + _d(_SHIFT), lambda shifted: of_near(near, shifted))
        )

    return named(tirx.reinterpret("int32", x), of_bits)


def _far_fraction(size: Any) -> Any:
    """The part of a turn that a far angle leaves, of 24 bits times 2^k: of 1 / (2 pi) only 84 bits behind the k-th
    count, for those before it make whole turns."""
    mantissa = tirx.Cast("int64", (size & i32(_MANTISSA)) | i32(_MANTISSA + 1))
    scale = (size >> i32(23)) - i32(_SCALE_OF_BITS)
    scale = tirx.Select(scale < i32(0), i32(0), scale)

    def of_scale(scale: Any) -> Any:
        left = scale
        for border in (1, 2, 3):
            left = left - tirx.Select(scale >= i32(border * _WORD), i32(_WORD), i32(0))
        return named(tirx.Cast("int64", i32(_WORD) - left), lambda shift: of_shift(scale, shift))

    def of_shift(scale: Any, shift: Any) -> Any:
        def word(place: int) -> Any:
            chosen = _l(_TURN[place])
            for border in (1, 2, 3):
                chosen = tirx.Select(scale >= i32(border * _WORD), _l(_TURN[place + border]), chosen)
            return (chosen >> shift) & _l((1 << _WORD) - 1)

        first = (mantissa * word(0) & _l((1 << _WORD) - 1)) << _l(_UNIT - _WORD)
        second = (mantissa * word(1)) << _l(_UNIT - 2 * _WORD)
        return first + second + ((mantissa * word(2)) >> _l(3 * _WORD - _UNIT))

    return named(scale, of_scale)


def _sine_near(r: Any) -> Any:
    return named(r * r, lambda z: polynomial(_SINE, z) * z * r + r)


def _cosine_near(r: Any) -> Any:
    return named(r * r, lambda z: polynomial(_COSINE, z) * (z * z) - z * f32(0.5) + f32(1.0))


def _d(value: float) -> Any:
    return tirx.const(value, "float64")


def _l(value: int) -> Any:
    return tirx.const(value, "int64")
