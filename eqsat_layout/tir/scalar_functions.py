"""What the nodes and intrinsics of TIR make of scalars of which only some are known.

In: a node, and a :class:`Scalar` for each operand. Out: one for the result. Only exact arithmetic gives numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_layout.tir.computation import Value
from eqsat_layout.tir.scalar_values import (
    ANYTHING,
    BOOL,
    FINITE,
    Interval,
    Kept,
    Scalar,
    UnsafeError,
    bounds_of,
    exactly,
    fits,
    is_finite,
    is_negative_zero,
    is_number,
)

Function = Callable[[Value, Sequence[Scalar]], Scalar]

ROUNDED: Mapping[str, Callable[[Any], Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "nearbyint": np.rint,
    "round": np.rint,
    "trunc": np.trunc,
}
"""What rounds floats, as NumPy does it, by the name of the intrinsic."""


def _is_int(node: Value) -> bool:
    return "int" in node.dtype


def _arithmetic(exact: Callable[[Any, Any], Any], neutral: int, commutes: bool) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if isinstance(a, int | float) and isinstance(b, int | float):
            if not (math.isfinite(a) and math.isfinite(b)):
                return ANYTHING
            found = exact(Fraction(a), Fraction(b))
            if not found and not _is_int(node) and is_negative_zero(exact(float(a), float(b))):
                return ANYTHING  # fractions have no sign of zero, and neither have the fills of formats
            return exactly(found, node.dtype)
        if b == neutral:
            return a
        if commutes and a == neutral:
            return b
        if neutral == 1 and ((a == 0 and is_finite(b)) or (b == 0 and is_finite(a))):
            return 0
        return _span(node, a, b, exact) if _is_int(node) else ANYTHING

    return function


def _span(node: Value, a: Scalar, b: Scalar, exact: Callable[[Fraction, Fraction], Fraction]) -> Scalar:
    """Bounds of integers; unbounded where they may wrap around."""
    left, right = bounds_of(a), bounds_of(b)
    if left is None or right is None:
        return ANYTHING
    if not all(math.isfinite(x) for x in (*left, *right)):
        return FINITE
    corners = [int(exact(Fraction(x), Fraction(y))) for x in left for y in right]
    return Interval(min(corners), max(corners)) if all(fits(c, node.dtype) for c in corners) else FINITE


def _divide(node: Value, args: Sequence[Scalar]) -> Scalar:
    if _is_int(node):
        return _divide_integers(lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1))(node, args)
    a, b = args
    if isinstance(a, int | float) and isinstance(b, int | float):
        finite = math.isfinite(a) and math.isfinite(b) and b
        known = finite and not is_negative_zero(a / b)
        return exactly(Fraction(a) / Fraction(b), node.dtype) if known else ANYTHING
    if a == 0 and not is_negative_zero(a) and isinstance(b, Interval) and b.low > 0:
        return 0
    return a if b == 1 else ANYTHING


def _divide_integers(exact: Callable[[int, int], int]) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if not _is_int(node):
            return ANYTHING
        bounds = bounds_of(b)
        if bounds is None or bounds[0] <= 0 <= bounds[1] or bounds[0] <= -1 <= bounds[1]:
            raise UnsafeError  # by 0, or the least number by -1
        if isinstance(a, int) and isinstance(b, int):
            return exactly(exact(a, b), node.dtype)
        return FINITE if is_finite(a) else ANYTHING

    return function


def _bits(exact: Callable[[int, int], int], neutral: int | None, shifts: bool = False) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if shifts and not (isinstance(b, int) and 0 <= b < 8):
            raise UnsafeError
        if isinstance(a, int) and isinstance(b, int):
            return exactly(exact(a, b), node.dtype)
        return a if b == neutral else ANYTHING

    return function


def _extreme(sign: int) -> Function:
    """The greater of two for 1, the lesser for -1. What a reduction starts from bounds all that it keeps."""

    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        for kept, other in ((a, b), (b, a)):
            if isinstance(kept, Kept) and isinstance(other, int | float):
                known = isinstance(kept.start, int | float) and sign * other <= sign * kept.start
                return kept if known else ANYTHING
        left, right = bounds_of(a), bounds_of(b)
        if left is None or right is None:
            return ANYTHING
        pick = max if sign > 0 else min
        low, high = pick(left[0], right[0]), pick(left[1], right[1])
        if low == high == 0 and any(
            is_negative_zero(v) or (isinstance(v, Interval) and 0 in (v.low, v.high)) for v in args
        ):
            return ANYTHING  # of two zeros either may be taken
        return low if low == high else Interval(low, high)

    return function


def _comparison(decide: Callable[[tuple[float, float], tuple[float, float]], int | None]) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        left, right = bounds_of(args[0]), bounds_of(args[1])
        known = None if left is None or right is None else decide(left, right)
        return BOOL if known is None else known

    return function


Bounds = tuple[float, float]


def _less(a: Bounds, b: Bounds) -> int | None:
    return 1 if a[1] < b[0] else 0 if a[0] >= b[1] else None


def _less_equal(a: Bounds, b: Bounds) -> int | None:
    return 1 if a[1] <= b[0] else 0 if a[0] > b[1] else None


def _equal(a: Bounds, b: Bounds) -> int | None:
    return 1 if a[0] == a[1] == b[0] == b[1] else 0 if a[1] < b[0] or b[1] < a[0] else None


def _not_equal(a: Bounds, b: Bounds) -> int | None:
    equal = _equal(a, b)
    return None if equal is None else 1 - equal


def _logic(deciding: int) -> Function:
    """``and`` is decided by 0, ``or`` by 1."""

    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if any(isinstance(v, int | float) and bool(v) == bool(deciding) for v in (a, b)):
            return deciding
        rest = [v for v in (a, b) if not is_number(v)]
        return rest[0] if len(rest) == 1 else BOOL if rest else 1 - deciding

    return function


def _negated(node: Value, args: Sequence[Scalar]) -> Scalar:
    (a,) = args
    return int(not a) if isinstance(a, int | float) else BOOL


def _cast(node: Value, args: Sequence[Scalar]) -> Scalar:
    (value,) = args
    source, target = node.args[0].dtype, node.dtype
    from_float = "int" not in source and source != "bool"
    if "int" in target and from_float:
        if not (isinstance(value, int | float) and math.isfinite(value) and fits(int(value), target)):
            raise UnsafeError  # undefined, where it does not fit
        return int(value)
    if isinstance(value, int | float):
        return int(bool(value)) if target == "bool" else exactly(value, target)
    bounds = bounds_of(value)
    if target == "bool":
        return 1 if bounds is not None and (bounds[0] > 0 or bounds[1] < 0) else BOOL
    if bounds is None:
        return ANYTHING
    if "int" in target:
        return value if all(math.isfinite(b) and fits(int(b), target) for b in bounds) else FINITE
    widens = not from_float and target in ("float32", "float64")
    return value if widens or (source, target) in _WIDER or source == target else ANYTHING


_WIDER = (("float16", "float32"), ("float16", "float64"), ("float32", "float64"), ("bfloat16", "float32"))


def _rounding(function: Callable[[float], float]) -> Function:
    def rounded(node: Value, args: Sequence[Scalar]) -> Scalar:
        (a,) = args
        if not isinstance(a, int | float) or not math.isfinite(a):
            return ANYTHING
        whole = function(a)
        return whole if whole or math.copysign(1, a) > 0 else ANYTHING  # -0.5 becomes -0.0

    return rounded


def _at(points: dict[float, float]) -> Function:
    """A function that any library computes exactly at these points only; at -0.0 it may be -0.0."""

    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        (a,) = args
        found = points.get(a, ANYTHING) if isinstance(a, int | float) else ANYTHING
        return ANYTHING if found == 0 and is_negative_zero(a) else found

    return function


def _power(node: Value, args: Sequence[Scalar]) -> Scalar:
    base, exponent = args
    return (
        base
        if base in (0, 1) and not is_negative_zero(base) and isinstance(exponent, int | float) and exponent > 0
        else ANYTHING
    )


def _root(node: Value, args: Sequence[Scalar]) -> Scalar:
    """A root or the inverse of one: positive and finite of what is positive and tame."""
    (a,) = args
    bounds = bounds_of(a)
    if a == 1 or (a == 0 and node.op.endswith(".sqrt")):
        return a
    if bounds is None or not 2.0**-20 < bounds[0] <= bounds[1] < 2.0**20:
        return ANYTHING
    return Interval(2.0**-11, 2.0**11)


_ZERO, _ONE = _at({0: 0}), _at({0: 1})


FUNCTIONS: dict[str, Function] = {
    "Add": _arithmetic(lambda a, b: a + b, 0, commutes=True),
    "Sub": _arithmetic(lambda a, b: a - b, 0, commutes=False),
    "Mul": _arithmetic(lambda a, b: a * b, 1, commutes=True),
    "Div": _divide,
    "Mod": _divide_integers(lambda a, b: int(math.fmod(a, b))),
    "FloorDiv": _divide_integers(lambda a, b: a // b),
    "FloorMod": _divide_integers(lambda a, b: a % b),
    "Max": _extreme(1),
    "Min": _extreme(-1),
    "LT": _comparison(_less),
    "LE": _comparison(_less_equal),
    "GT": _comparison(lambda a, b: _less(b, a)),
    "GE": _comparison(lambda a, b: _less_equal(b, a)),
    "EQ": _comparison(_equal),
    "NE": _comparison(_not_equal),
    "And": _logic(0),
    "Or": _logic(1),
    "Not": _negated,
    "Cast": _cast,
    "LShift": _bits(lambda a, b: a << b, 0, shifts=True),
    "RShift": _bits(lambda a, b: a >> b, 0, shifts=True),
    "shift_left": _bits(lambda a, b: a << b, 0, shifts=True),
    "shift_right": _bits(lambda a, b: a >> b, 0, shifts=True),
    "BitwiseAnd": _bits(lambda a, b: a & b, None),
    "BitwiseOr": _bits(lambda a, b: a | b, 0),
    "BitwiseXor": _bits(lambda a, b: a ^ b, 0),
    "bitwise_and": _bits(lambda a, b: a & b, None),
    "bitwise_or": _bits(lambda a, b: a | b, 0),
    "bitwise_xor": _bits(lambda a, b: a ^ b, 0),
    "fabs": _rounding(abs),
    "abs": _rounding(abs),
    "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil),
    "trunc": _rounding(math.trunc),
    "nearbyint": _rounding(round),
    "isnan": lambda node, args: 0 if is_number(args[0]) or isinstance(args[0], Interval) else BOOL,
    "likely": lambda node, args: args[0],
    "sqrt": _root,
    "pow": _power,
    "exp": _ONE,
    "exp2": _ONE,
    "exp10": _ONE,
    "cos": _ONE,
    "cosh": _ONE,
    "log": _at({1: 0}),
    "log2": _at({1: 0}),
    "log10": _at({1: 0}),
    "log1p": _ZERO,
    "rsqrt": _root,
    "sigmoid": _at({0: 0.5}),
    "tanh": _ZERO,
    "erf": _ZERO,
    "sin": _ZERO,
    "tan": _ZERO,
    "asin": _ZERO,
    "atan": _ZERO,
    "sinh": _ZERO,
}
"""What the nodes and intrinsics of TIR compute; what is missing here gives anything."""
