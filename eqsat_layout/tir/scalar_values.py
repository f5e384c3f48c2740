"""What is known of a scalar: the number itself, bounds of it, or nothing; and which numbers a type holds.

In: numbers and types. Out: a :class:`Scalar`. A float is a number here only if every machine computes just that one.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


class UnsafeError(Exception):
    """The expression may fault or be undefined here: a load out of bounds, a division by 0; never leaves this room."""


class _Anything(enum.Enum):
    ANYTHING = "anything"


ANYTHING = _Anything.ANYTHING
"""Any bits, NaN included."""


@dataclass(frozen=True)
class Interval:
    """An unknown number, finite, from ``low`` to ``high``; a bound may be infinite."""

    low: float
    high: float


@dataclass(frozen=True)
class Kept:
    """What a reduction has stored in ``buffer`` so far: ``start``, then reduced with real data."""

    buffer: int
    start: Scalar


Scalar = int | float | Interval | Kept | _Anything

FINITE = Interval(-math.inf, math.inf)
BOOL = Interval(0, 1)


def as_held(number: float, dtype: str) -> int | float | None:
    """The number that a buffer of ``dtype`` holds where ``number`` is stored; None if it can't hold it."""
    if math.isnan(number):
        return None
    if dtype == "bool":
        return int(number) if number in (0, 1) else None
    if "int" in dtype:
        exact = math.isfinite(number) and number == int(number)
        return int(number) if exact and fits(int(number), dtype) else None
    if dtype in ("float16", "float32", "float64"):
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(dtype).type(number))
        return None if math.isinf(rounded) and not math.isinf(number) else rounded
    if dtype == "bfloat16":
        bits = np.float32(number).view(np.uint32)
        return float(number) if float(np.float32(number)) == number and not int(bits) & 0xFFFF else None
    return float(number) if number in (0, 1, -1, 0.5) else None


def fits(number: int, dtype: str) -> bool:
    """An integer type holds the number."""
    digits = dtype.lstrip("uint")
    bits = int(digits) if digits.isdigit() else 8
    return 0 <= number < 1 << bits if dtype.startswith("u") else -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def exactly(number: Fraction | int | float, dtype: str) -> Scalar:
    """The number if ``dtype`` holds it exactly; else, if it is a tame float, roughly what it is rounded to."""
    if isinstance(number, Fraction):
        try:
            near = number.numerator if number.denominator == 1 and "int" in dtype else float(number)
        except OverflowError:
            return ANYTHING
        if near != number:
            return ANYTHING if "int" in dtype else roughly(near)
        number = near
    found = as_held(number, dtype)
    if found is not None and found == number:
        return found
    return ANYTHING if "int" in dtype or dtype == "bool" else roughly(number)


def roughly(number: float) -> Scalar:
    """Some number near this one and of its sign, however it is rounded."""
    if not _TAME[0] < abs(number) < _TAME[1]:
        return ANYTHING
    return Interval(*sorted((number / 2, number * 2)))


_TAME = (2.0**-12, 2.0**12)
"""Magnitudes that stay normal numbers in every float type when they are squared or their root is taken."""


def is_number(value: Scalar) -> bool:
    """It is known."""
    return isinstance(value, int | float)


def is_finite(value: Scalar) -> bool:
    """It is neither NaN nor infinite."""
    return isinstance(value, Interval) or (isinstance(value, int | float) and math.isfinite(value))


def is_negative_zero(value: Scalar) -> bool:
    """It is -0.0, which equals 0 and is another number."""
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def bounds_of(value: Scalar) -> tuple[float, float] | None:
    """Least and greatest; None if NaN is possible or nothing is known."""
    if isinstance(value, Interval):
        return value.low, value.high
    return (value, value) if isinstance(value, int | float) else None


def either(a: Scalar, b: Scalar) -> Scalar:
    """One of the two, unknown which."""
    if a == b and is_negative_zero(a) == is_negative_zero(b):
        return a
    if is_finite(a) and is_finite(b):
        low, high = bounds_of(a), bounds_of(b)
        assert low is not None
        assert high is not None
        return Interval(min(low[0], high[0]), max(low[1], high[1]))
    return ANYTHING
