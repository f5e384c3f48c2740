"""Functions such as exp and erf as arithmetic, which LLVM turns into vectors.

In: a PrimFunc. Out: the same with every float32 exp, log, sigmoid, tanh, erf, atan, sine and cosine and every power
with a small whole exponent written out, and no division by a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.hyperbolic import without_logarithms
from eqsat_layout.targets.schedules.lets import f32, i32, named, polynomial
from eqsat_layout.targets.schedules.sines import cosine, sine
from eqsat_layout.tir.structural import structural_map

_TINIEST: Final = 2.0**-126
_LOG2_E: Final = 1.44269504088896
_LN2_HIGH: Final = 0.693359375
_LN2_LOW: Final = -2.12194440054690e-4
_SHIFT: Final = 12582912.0
"""1.5 * 2^23: a float that is added to it is rounded to an integer, which its low bits then hold."""
_SHIFT_BITS: Final = 0x4B400000
_EXP: Final = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Of exp(r) = 1 + r + r^2 p(r) for |r| <= ln(2) / 2 (Cephes, expf)."""
_SIGMOID_RANGE: Final = (-87.0, 89.0)
"""From 88.4 on the power is infinity, so that sigmoid(-inf) is 0."""
_EXP_RANGE: Final = (-87.3, 89.0)
"""At the ends and beyond, the result is 0 or infinity."""

_LOG: Final = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
"""Of log(1 + x) = x - x^2 / 2 + x^3 p(x) for 1 + x between the roots of 1/2 and 2 (Cephes, logf)."""
_ROOT_HALF_BITS: Final = 0x3F3504F3
_MANTISSA: Final = (1 << 23) - 1
_DENORMAL_BITS: Final = 25
"""More than denormal numbers have, so that their products with 2^25 are normal."""

LARGEST_POWER: Final = 8
"""Exponents up to it are two or three products."""

_ERF: Final = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_BELOW: Final = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
"""erf(x) = x p(x^2) / q(x^2) for |x| <= 4 (the rational minimax fit of Eigen and XLA)."""

_TANH: Final = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_BELOW: Final = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
"""tanh(x) = x p(x^2) / q(x^2) for |x| <= 7.96 (the rational minimax fit of Eigen and XLA)."""
_TANH_END: Final = 7.963572025299072
"""There this is 1, with multiply-adds and without, and nowhere before more: ``x * (1 + tanh(x))`` of -inf is NaN."""

_ATAN: Final = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
"""Of atan(x) = x + x^3 p(x^2) for |x| <= tan(pi / 8) (Cephes, atanf)."""
_TAN_8TH: Final = math.sqrt(2) - 1


def expand_functions(func: Any) -> Any:
    """``func`` with these functions as arithmetic.

    As calls of libm they are done element by element: 1.4 ns for exp, 8.9 ns for erf, against 0.1 to 0.3. Relative
    errors are below 4e-7; infinities and NaN come out as they should (tests/targets/schedules/test_math_functions.py).
    """

    def on_call(call: Any) -> Any:
        if not isinstance(call.ty, tvm.ir.PrimType) or str(call.ty.dtype) != "float32":  # addresses have no dtype
            return call
        exponent = small_exponent(call)
        if exponent is not None:
            return _whole_power(call.args[0], exponent)
        expansion = _EXPANSIONS.get(_name_of(call))
        return call if expansion is None else expansion(call.args[0])

    body = without_logarithms(func.body)
    return func.with_body(structural_map(body, (tvm.ir.Call, on_call)))


def is_expanded(call: Any) -> bool:
    """Whether it is of one of these functions."""
    return _name_of(call) in _EXPANSIONS


def small_exponent(call: Any) -> int | None:
    """The exponent of a power that is a few products; ``None`` for other calls."""
    exponent = call.args[1] if _name_of(call) == "tirx.pow" else None
    if not isinstance(exponent, tirx.FloatImm | tirx.IntImm):
        return None
    number = float(exponent.value)
    return int(number) if number.is_integer() and abs(number) <= LARGEST_POWER else None


def _name_of(call: Any) -> str:
    return str(getattr(call.op, "name", ""))


def _whole_power(x: Any, exponent: int) -> Any:
    """A power by repeated squaring: libm takes 20 ns for one element."""

    def product(x: Any, count: int) -> Any:
        if count == 1:
            return x
        half = named(x * x, lambda square: product(square, count // 2))
        return half * x if count % 2 else half

    if exponent == 0:
        return f32(1.0)
    power = named(x, lambda x: product(x, abs(exponent)))
    return power if exponent > 0 else f32(1.0) / power


def _exp(x: Any) -> Any:
    """Results below 1.7e-38 are 0: arithmetic with denormal numbers takes a hundred cycles and more, and a softmax
    under a mask would give them to the product after it."""

    def scaled(value: Any, n: Any) -> Any:
        return value * f32(2.0) * _power(n - i32(1))  # the largest results need 2^128

    return _exp_of(x, _EXP_RANGE, scaled)


def _log(x: Any) -> Any:
    """2^n (1 + m), with denormal numbers multiplied first."""

    def of_parts(n: Any, m: Any) -> Any:
        curved = named(m * m, lambda square: m * square * polynomial(_LOG, m) + n * f32(_LN2_LOW) - square * f32(0.5))
        return curved + m + n * f32(_LN2_HIGH)

    def special(x: Any) -> Any:
        is_denormal = x < f32(_TINIEST)
        normal = tirx.Select(is_denormal, x * f32(2.0**_DENORMAL_BITS), x)
        shift = tirx.Select(is_denormal, f32(-_DENORMAL_BITS), f32(0.0))

        def of_bits(bits: Any) -> Any:
            exponent = tirx.Cast("float32", bits >> i32(23)) + shift
            mantissa = tirx.reinterpret("float32", (bits & i32(_MANTISSA)) + i32(_ROOT_HALF_BITS))
            return named(exponent, lambda n: named(mantissa - f32(1.0), lambda m: of_parts(n, m)))

        found = named(tirx.reinterpret("int32", normal) - i32(_ROOT_HALF_BITS), of_bits)
        found = tirx.Select(x < f32(math.inf), found, x)  # infinity and NaN are their own
        found = tirx.Select(x < f32(0.0), f32(math.nan), found)
        return tirx.Select(tirx.EQ(x, f32(0.0)), f32(-math.inf), found)

    return named(x, special)


def _exp_of(x: Any, bounds: tuple[float, float], scaled: Callable[[Any, Any], Any]) -> Any:
    """2^n exp(r) with x = n ln 2 + r; ``scaled`` multiplies by 2^n."""

    def of_bounded(x: Any) -> Any:
        return named(x * f32(_LOG2_E) + f32(_SHIFT), lambda shifted: of_shifted(x, shifted))

    def of_shifted(x: Any, shifted: Any) -> Any:
        n = shifted - f32(_SHIFT)
        r = x - n * f32(_LN2_HIGH) - n * f32(_LN2_LOW)
        bits = tirx.reinterpret("int32", shifted) - i32(_SHIFT_BITS)
        value = named(r, lambda r: polynomial(_EXP, r) * (r * r) + r + f32(1.0))
        return named(bits, lambda n: scaled(value, n))

    return named(_bounded(x, *bounds), of_bounded)


def _power(n: Any) -> Any:
    """2^n for an integer from -126 to 127; 0 for -127, infinity for 128."""
    return tirx.reinterpret("float32", (n + i32(127)) << i32(23))


def _sigmoid(x: Any) -> Any:
    """Results below 5e-39 come out as 0."""
    exp = _exp_of(f32(0.0) - x, _SIGMOID_RANGE, lambda value, n: value * _power(n))
    return f32(1.0) / (f32(1.0) + exp)


def _erf(x: Any) -> Any:
    return named(_bounded(x, -4.0, 4.0), lambda x: _rational(x, _ERF, _ERF_BELOW))


def _tanh(x: Any) -> Any:
    return named(_bounded(x, -_TANH_END, _TANH_END), lambda x: _rational(x, _TANH, _TANH_BELOW))


def _atan(x: Any) -> Any:
    """atan(a) = pi/4 + atan((a - 1) / (a + 1)) = pi/2 - atan(1 / a)."""

    def of_size(a: Any) -> Any:
        is_far, is_near = a > f32(1 / _TAN_8TH), a <= f32(_TAN_8TH)
        part = tirx.Select(is_far, f32(-1.0) / a, tirx.Select(is_near, a, (a - f32(1.0)) / (a + f32(1.0))))
        start = tirx.Select(is_far, f32(math.pi / 2), tirx.Select(is_near, f32(0.0), f32(math.pi / 4)))
        found = named(part, lambda r: named(r * r, lambda z: start + (polynomial(_ATAN, z) * z * r + r)))
        return tirx.Select(x < f32(0.0), f32(0.0) - found, found)

    return named(x, lambda x: named(tirx.Select(x < f32(0.0), f32(0.0) - x, x), of_size))


def _rational(x: Any, above: Sequence[float], below: Sequence[float]) -> Any:
    return named(x * x, lambda square: x * (polynomial(above, square) / polynomial(below, square)))


def _bounded(x: Any, low: float, high: float) -> Any:
    """Unlike ``min`` and ``max``, this lets NaN pass."""

    def from_above(x: Any) -> Any:
        return named(tirx.Select(f32(high) < x, f32(high), x), from_below)

    def from_below(x: Any) -> Any:
        return tirx.Select(f32(low) > x, f32(low), x)

    return named(x, from_above)


_EXPANSIONS: Final = {
    "tirx.exp": _exp,
    "tirx.log": _log,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": _tanh,
    "tirx.erf": _erf,
    "tirx.atan": _atan,
    "tirx.sin": sine,
    "tirx.cos": cosine,
}
