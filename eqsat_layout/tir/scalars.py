"""What a scalar expression gives where only some of what it reads is known.

In: a :class:`Value` and what its loads and iteration variables are: a number, a finite number within bounds, the value
that a reduction has so far, or anything at all. Out: the same of the whole. Only exact arithmetic gives numbers, so
that neither fused multiply-adds nor a wider intermediate type nor the mathematical library make a difference.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from eqsat_layout.tir.computation import Access, Value


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

Load = Callable[[Access, bool], Scalar]
"""The value of a load; True if a condition over it depends on where the point is."""


@dataclass(frozen=True)
class Evaluator:
    """``iterations[i]`` is what variable ``i`` is; ``outside`` are the variables that the original never has so."""

    load: Load
    iterations: Sequence[Scalar]
    outside: frozenset[int] = frozenset()

    def value(self, node: Value, guarded: bool = False) -> Scalar:
        """What ``node`` gives. Raises :class:`UnsafeError` where its evaluation may fault."""
        if node.access is not None:
            return self.load(node.access, guarded)
        if node.op == "iter":
            return self.iterations[int(node.literal)]
        if node.op == "symbol":
            return FINITE
        if node.op == "const":
            number = held(_literal(node), node.dtype)
            return ANYTHING if number is None else number
        if node.op in ("prim.if_then_else", "Select"):
            return self._choice(node, guarded)
        function = _FUNCTIONS.get(node.op.removeprefix("tirx.").removeprefix("prim."))
        args = [self.value(a, guarded) for a in node.args]
        return ANYTHING if function is None else function(node, args)

    def _choice(self, node: Value, guarded: bool) -> Scalar:
        """A decided ``if_then_else`` evaluates one side only; ``Select`` both, always."""
        condition = self.value(node.args[0], guarded)
        guarded = guarded or any(self._is_outside(v) for v in node.args[0].walk())
        sides = node.args[1:]
        if node.op != "Select" and _is_number(condition):
            sides = sides[:1] if condition else sides[1:]
        found = [self.value(side, guarded) for side in sides]
        if _is_number(condition) and found[1:]:
            return found[0] if condition else found[1]
        return found[0] if not found[1:] else _join(*found)

    def _is_outside(self, node: Value) -> bool:
        if node.op == "iter":
            return int(node.literal) in self.outside
        indices = node.access.indices if node.access is not None else ()
        return any(i in self.outside for index in indices for i in index.iters)


# ---- numbers in a dtype ----


def held(number: float, dtype: str) -> int | float | None:
    """The number that a buffer of ``dtype`` holds where ``number`` is stored; None if it can't hold it."""
    if math.isnan(number):
        return None
    if dtype == "bool":
        return int(number) if number in (0, 1) else None
    if "int" in dtype:
        exact = math.isfinite(number) and number == int(number)
        return int(number) if exact and _fits(int(number), dtype) else None
    if dtype in ("float16", "float32", "float64"):
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(dtype).type(number))
        return None if math.isinf(rounded) and not math.isinf(number) else rounded
    if dtype == "bfloat16":
        bits = np.float32(number).view(np.uint32)
        return float(number) if float(np.float32(number)) == number and not int(bits) & 0xFFFF else None
    return float(number) if number in (0, 1, -1, 0.5) else None


def _fits(number: int, dtype: str) -> bool:
    digits = dtype.lstrip("uint")
    bits = int(digits) if digits.isdigit() else 8
    return 0 <= number < 1 << bits if dtype.startswith("u") else -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def _exactly(number: Fraction | int | float, dtype: str) -> Scalar:
    """The number if ``dtype`` holds it exactly; else, if it is a tame float, roughly what it is rounded to."""
    if isinstance(number, Fraction):
        try:
            near = number.numerator if number.denominator == 1 and "int" in dtype else float(number)
        except OverflowError:
            return ANYTHING
        if near != number:
            return ANYTHING if "int" in dtype else _roughly(near)
        number = near
    found = held(number, dtype)
    if found is not None and found == number:
        return found
    return ANYTHING if "int" in dtype or dtype == "bool" else _roughly(number)


def _roughly(number: float) -> Scalar:
    """Some number near this one and of its sign, however it is rounded."""
    if not _TAME[0] < abs(number) < _TAME[1]:
        return ANYTHING
    return Interval(*sorted((number / 2, number * 2)))


_TAME = (2.0**-12, 2.0**12)
"""Magnitudes that stay normal numbers in every float type when they are squared or their root is taken."""


def _literal(node: Value) -> float:
    return node.literal if isinstance(node.literal, int) else float.fromhex(node.literal)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float)


def _is_finite(value: Scalar) -> bool:
    return isinstance(value, Interval) or (isinstance(value, int | float) and math.isfinite(value))


def _bounds(value: Scalar) -> tuple[float, float] | None:
    """Least and greatest; None if NaN is possible or nothing is known."""
    if isinstance(value, Interval):
        return value.low, value.high
    return (value, value) if isinstance(value, int | float) else None


def _join(a: Scalar, b: Scalar) -> Scalar:
    """One of the two, unknown which."""
    if a == b:
        return a
    if _is_finite(a) and _is_finite(b):
        low, high = _bounds(a), _bounds(b)
        assert low is not None
        assert high is not None
        return Interval(min(low[0], high[0]), max(low[1], high[1]))
    return ANYTHING


# ---- the functions ----

Function = Callable[[Value, Sequence[Scalar]], Scalar]


def _is_int(node: Value) -> bool:
    return "int" in node.dtype


def _arithmetic(exact: Callable[[Fraction, Fraction], Fraction], neutral: int, commutes: bool) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if isinstance(a, int | float) and isinstance(b, int | float):
            if not (math.isfinite(a) and math.isfinite(b)):
                return ANYTHING
            found = exact(Fraction(a), Fraction(b))
            if neutral == 1 and not found and not _is_int(node) and math.copysign(1, a) * math.copysign(1, b) < 0:
                return ANYTHING  # -0: fractions have no sign of zero, and neither have the fills of formats
            return _exactly(found, node.dtype)
        if b == neutral:
            return a
        if commutes and a == neutral:
            return b
        if neutral == 1 and ((a == 0 and _is_finite(b)) or (b == 0 and _is_finite(a))):
            return 0
        return _span(node, a, b, exact) if _is_int(node) else ANYTHING

    return function


def _span(node: Value, a: Scalar, b: Scalar, exact: Callable[[Fraction, Fraction], Fraction]) -> Scalar:
    """Bounds of integers; unbounded where they may wrap around."""
    left, right = _bounds(a), _bounds(b)
    if left is None or right is None:
        return ANYTHING
    if not all(math.isfinite(x) for x in (*left, *right)):
        return FINITE
    corners = [int(exact(Fraction(x), Fraction(y))) for x in left for y in right]
    return Interval(min(corners), max(corners)) if all(_fits(c, node.dtype) for c in corners) else FINITE


def _divide(node: Value, args: Sequence[Scalar]) -> Scalar:
    if _is_int(node):
        return _divide_integers(lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1))(node, args)
    a, b = args
    if isinstance(a, int | float) and isinstance(b, int | float):
        finite = math.isfinite(a) and math.isfinite(b) and b
        return _exactly(Fraction(a) / Fraction(b), node.dtype) if finite else ANYTHING
    if a == 0 and isinstance(b, Interval) and (b.low > 0 or b.high < 0):
        return 0
    return a if b == 1 else ANYTHING


def _divide_integers(exact: Callable[[int, int], int]) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if not _is_int(node):
            return ANYTHING
        bounds = _bounds(b)
        if bounds is None or bounds[0] <= 0 <= bounds[1] or bounds[0] <= -1 <= bounds[1]:
            raise UnsafeError  # by 0, or the least number by -1
        if isinstance(a, int) and isinstance(b, int):
            return _exactly(exact(a, b), node.dtype)
        return FINITE if _is_finite(a) else ANYTHING

    return function


def _bits(exact: Callable[[int, int], int], neutral: int | None, shifts: bool = False) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        a, b = args
        if shifts and not (isinstance(b, int) and 0 <= b < 8):
            raise UnsafeError
        if isinstance(a, int) and isinstance(b, int):
            return _exactly(exact(a, b), node.dtype)
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
        left, right = _bounds(a), _bounds(b)
        if left is None or right is None:
            return ANYTHING
        pick = max if sign > 0 else min
        low, high = pick(left[0], right[0]), pick(left[1], right[1])
        return low if low == high else Interval(low, high)

    return function


def _comparison(decide: Callable[[tuple[float, float], tuple[float, float]], int | None]) -> Function:
    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        left, right = _bounds(args[0]), _bounds(args[1])
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
        rest = [v for v in (a, b) if not _is_number(v)]
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
        if not (isinstance(value, int | float) and math.isfinite(value) and _fits(int(value), target)):
            raise UnsafeError  # undefined, where it does not fit
        return int(value)
    if isinstance(value, int | float):
        return int(bool(value)) if target == "bool" else _exactly(value, target)
    bounds = _bounds(value)
    if target == "bool":
        return 1 if bounds is not None and (bounds[0] > 0 or bounds[1] < 0) else BOOL
    if bounds is None:
        return ANYTHING
    if "int" in target:
        return value if all(math.isfinite(b) and _fits(int(b), target) for b in bounds) else FINITE
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
    """A function that any library computes exactly at these points only."""

    def function(node: Value, args: Sequence[Scalar]) -> Scalar:
        (a,) = args
        return points.get(a, ANYTHING) if isinstance(a, int | float) else ANYTHING

    return function


def _power(node: Value, args: Sequence[Scalar]) -> Scalar:
    base, exponent = args
    return base if base in (0, 1) and isinstance(exponent, int | float) and exponent > 0 else ANYTHING


def _root(node: Value, args: Sequence[Scalar]) -> Scalar:
    """A root or the inverse of one: positive and finite of what is positive and tame."""
    (a,) = args
    bounds = _bounds(a)
    if a == 1 or (a == 0 and node.op.endswith(".sqrt")):
        return a
    if bounds is None or not 2.0**-20 < bounds[0] <= bounds[1] < 2.0**20:
        return ANYTHING
    return Interval(2.0**-11, 2.0**11)


_ZERO, _ONE = _at({0: 0}), _at({0: 1})

_FUNCTIONS: dict[str, Function] = {
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
    "isnan": lambda node, args: 0 if _is_number(args[0]) or isinstance(args[0], Interval) else BOOL,
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
