"""Functions of single elements that are no arithmetic of others: of errors, gamma's, the next float.

In: an importer's builder, operands. Out: results in Relax, of the operands' type. Those of narrow floats and of whole
numbers are computed in float32, gamma's in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype

_MIDDLE: Final = 3.0
"""``exp(x^2) erfc(x)`` is a polynomial of ``(x - 3) / (x + 3)``, for ``x`` from 0 to :data:`_ENDS`."""

_ENDS: Final = {"float32": 10.0, "float64": 28.0}
"""From there ``erfc`` is 0 for that type."""

# fmt: off
_TERMS: Final = {
    "float32": [
        0.179001138, -0.326233566, 0.245604545, -0.150115222, 0.0716551915, -0.0244054757, 0.00431692088,
        0.000785636541, -0.000647309003, -0.000100875455,
    ],
    "float64": [
        0.17900115118138996, -0.3262335600430374, 0.24560380171232943, -0.1501159365007622, 0.07166583719806088,
        -0.024392499319140996, 0.004269136330964829, 0.0007077464455352426, -0.0005970619262319104,
        4.5255248253372726e-05, 6.405639771213898e-05, -1.2860273949326376e-05, -7.977426987876673e-06,
        2.1194128768606826e-06, 1.2504517763532594e-06, -2.9299902292533346e-07, -2.307901638664326e-07,
        2.7726095125032085e-08, 4.226036039194939e-08, 1.152721120756169e-09, -5.590086302920411e-09,
        -8.536978868707139e-10, 1.9674703501081507e-10,
    ],
}
"""Lowest power first, as all of these: they go through the function at the nodes of Chebyshev's polynomials."""

_NEAR: Final = [
    1.50140936, 0.246640279, -0.00417739287, -0.00125272641, 0.000218349384, -4.97241088e-06, -3.46398458e-06,
    4.68129419e-07, 2.33359073e-08, -8.93178523e-09,
]
_FAR: Final = [
    2.83297678, 1.00167536, 0.00944601258, -0.0076461415, 0.00568438162, -0.00354514158, 0.00147041514,
    -0.000167769491, -0.000239431493, 0.000185247319, -6.93225108e-05, 1.51523243e-05, -1.84839399e-06,
    9.75908108e-08,
]
"""``erfinv(x) / x`` of ``w - 2.5``, and of ``sqrt(w) - 3`` from ``w = 5``, where ``w = -log(1 - x^2)``."""
# fmt: on


class _Number:
    """A tensor that is computed with."""

    def __init__(self, builder: relax.BlockBuilder, value: Any) -> None:
        self.builder, self.value = builder, value

    @property
    def dtype(self) -> str:
        return str(self.value.ty.dtype)

    def _of(self, op: Callable[..., Any], *others: Any) -> _Number:
        return _Number(self.builder, self.builder.emit(op(self.value, *map(self._raw, others))))

    def _raw(self, other: Any) -> Any:
        return other.value if isinstance(other, _Number) else relax.const(other, self.dtype)

    def like(self, number: float) -> _Number:
        return _Number(self.builder, relax.const(number, self.dtype))

    def cast(self, dtype: str) -> _Number:
        return _Number(self.builder, as_dtype(self.builder, self.value, dtype))

    def __add__(self, other: Any) -> _Number:
        return self._of(relax.op.add, other)

    def __sub__(self, other: Any) -> _Number:
        return self._of(relax.op.subtract, other)

    def __mul__(self, other: Any) -> _Number:
        return self._of(relax.op.multiply, other)

    def __truediv__(self, other: Any) -> _Number:
        return self._of(relax.op.divide, other)

    def __neg__(self) -> _Number:
        return self._of(relax.op.negative)

    def __getattr__(self, name: str) -> Callable[..., _Number]:
        return lambda *others: self._of(getattr(relax.op, name), *others)

    def where(self, condition: _Number, other: Any) -> _Number:
        """``self`` where that holds."""
        return _Number(self.builder, self.builder.emit(relax.op.where(condition.value, self.value, self._raw(other))))

    def polynomial(self, terms: Sequence[float]) -> _Number:
        total = self * terms[-1] + terms[-2]
        for term in reversed(terms[:-2]):
            total = total * self + term
        return total


def _computed(function: Callable[[_Number], _Number], inside: str = "") -> Callable[[relax.BlockBuilder, Any], Any]:
    """``function`` of each element, in ``inside`` or the element's own type; narrow floats in float32."""

    def make(b: relax.BlockBuilder, x: Any) -> Any:
        own = _Number(b, x)
        dtype = own.dtype if own.dtype.startswith(("float", "bfloat")) else "float32"
        wide = inside or (dtype if dtype in _TERMS else "float32")
        return function(own.cast(wide)).cast(dtype).value

    return make


def _of_square(x: _Number, sign: int) -> _Number:
    """``exp(x^2)`` or ``exp(-x^2)``; the square of few bits is exact, and what is left is small."""
    coarse = (x * 16.0).floor() * (1 / 16)
    return (coarse * coarse * sign).exp() * ((x - coarse) * (x + coarse) * sign).exp()


def _scaled_tail(size: _Number) -> _Number:
    """``exp(x^2) erfc(x)`` for what is not below 0 and not beyond the end."""
    return ((size - _MIDDLE) / (size + _MIDDLE)).polynomial(_TERMS[size.dtype])


def _erfc(x: _Number) -> _Number:
    """``1 - erf(x)``, with its digits where it is small."""
    end = _ENDS[x.dtype]
    size = x.abs()
    inside = size.minimum(end)
    tail = x.like(0.0).where(size.greater_equal(end), _scaled_tail(inside) * _of_square(inside, -1))
    return x.where(x.isnan(), (-tail + 2.0).where(x.less(0.0), tail))


def _erfcx(x: _Number) -> _Number:
    """``exp(x^2) erfc(x)``; beyond the end a series in ``1 / x^2``."""
    end = _ENDS[x.dtype]
    size = x.abs()
    inside, far = size.minimum(end), size.maximum(end)
    is_far = size.greater_equal(end)
    series = (x.like(0.5) / far / far).polynomial([1.0, -1.0, 3.0, -15.0, 105.0])
    tail = (series / (far * math.sqrt(math.pi))).where(is_far, _scaled_tail(inside))
    below = x.like(math.inf).where(is_far, _of_square(inside, 1) * 2.0 - tail)
    return x.where(x.isnan(), below.where(x.less(0.0), tail))


def _erfinv(x: _Number) -> _Number:
    """Where ``erf`` is ``x``; of float64 after two of Halley's steps on the tail."""
    size = x.abs()
    rest = -size + 1.0
    inside = rest.maximum(1e-17)
    w = -(inside * (size + 1.0)).log()
    far = (w.maximum(5.0).sqrt() - 3.0).polynomial(_FAR)
    factor = (w.minimum(5.0) - 2.5).polynomial(_NEAR).where(w.less(5.0), far)
    y = size * factor
    for _ in range(2 if x.dtype == "float64" else 0):
        error = _erfc(y) - rest
        y = y + error / ((-(y * y)).exp() * (2 / math.sqrt(math.pi)) - y * error)
    y = x.like(math.inf).where(size.equal(1.0), x.like(math.nan).where(size.greater(1.0), y))
    return x.where(x.isnan(), (-y).where(x.less(0.0), y))


_ENOUGH: Final = 8
"""From there the series of gamma's logarithm have all digits."""

_OF_LOG: Final = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156]
_OF_SLOPE: Final = [-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12]


def _lgamma(x: _Number) -> _Number:
    """The logarithm of gamma's size: Stirling's series, reflected below one half."""
    is_low = x.less(0.5)
    own = (-x + 1.0).where(is_low, x)
    product = own
    for step in range(1, _ENOUGH):
        product = product * (own + float(step))
    is_far = own.greater_equal(float(_ENOUGH))
    far = own.where(is_far, own + float(_ENOUGH))
    inverse = far.like(1.0) / far
    series = inverse * (inverse * inverse).polynomial(_OF_LOG) + 0.5 * math.log(2 * math.pi)
    made = (far - 0.5) * (far.log() - 1.0) - 0.5 + series
    made = made.where(is_far, made - product.like(1.0).where(is_far, product).log())
    made = far.where(far.equal(math.inf), made)
    turn = x - x.floor()
    sine = (turn.minimum(-turn + 1.0) * math.pi).sin()
    low = -(sine.log() + made) + math.log(math.pi)
    low = x.like(math.inf).where(turn.equal(0.0), low)
    low = x.like(math.inf).where(x.equal(-math.inf), low)
    return low.where(is_low, made)


def _digamma(x: _Number) -> _Number:
    """The slope of gamma's logarithm."""
    is_low = x.less(0.5)
    own = (-x + 1.0).where(is_low, x)
    is_far = own.greater_equal(float(_ENOUGH))
    one = own.like(1.0)
    before = one / own
    for step in range(1, _ENOUGH):
        before = before + one / (own + float(step))
    far = own.where(is_far, own + float(_ENOUGH))
    inverse = one / far
    square = inverse * inverse
    made = far.log() - inverse * 0.5 + square * square.polynomial(_OF_SLOPE)
    made = made.where(is_far, made - before)
    turn = x - x.floor()
    angle = turn * math.pi
    pole = (x.like(-1.0) / x).where(x.equal(0.0), x.like(math.nan))
    low = pole.where(turn.equal(0.0), made - angle.cos() * math.pi / angle.sin())
    return low.where(is_low, made)


_BITS: Final = {"float32": "int32", "float64": "int64"}


def _next(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    """``nextafter``: the float beside one, towards another."""
    dtype = str(one.ty.dtype)
    if dtype not in _BITS or str(other.ty.dtype) != dtype:
        raise EqsatError(f"nextafter of {dtype} is not done")
    kind = _BITS[dtype]
    extents = b.normalize(relax.op.add(one, other)).ty.shape
    one, other = (b.emit(relax.op.broadcast_to(x, extents)) for x in (one, other))

    def element(x: Any, y: Any) -> Any:
        bits = tirx.reinterpret(kind, x)
        least = tirx.const(1, kind)
        more, less = bits + least, bits - least
        is_up = x < y
        up = tirx.Select(x > tirx.const(0.0, dtype), tirx.Select(is_up, more, less), tirx.Select(is_up, less, more))
        from_zero = tirx.reinterpret(kind, y) & tirx.min_value(kind) | least
        moved = tirx.reinterpret(dtype, tirx.Select(bits << 1 == tirx.const(0, kind), from_zero, up))
        return tirx.Select(tirx.isnan(x), x, tirx.Select(tirx.Or(x == y, tirx.isnan(y)), y, moved))

    def compute(x: Any, y: Any) -> Any:
        return te.compute(x.shape, lambda *at: element(x(*at), y(*at)), "nextafter")

    return b.emit_te(compute, one, other, primfunc_name_hint="nextafter")


def _scaled(b: relax.BlockBuilder, x: Any, exponent: Any) -> Any:
    """``ldexp``, in float64, which holds all powers of two that make a float32 of another one; of float64 in parts, as
    their product may be finite where one power is not."""
    dtype = str(x.ty.dtype) if str(x.ty.dtype).startswith(("float", "bfloat")) else "float32"
    parts = 3 if dtype == "float64" else 1
    made, power = (_Number(b, value).cast("float64") for value in (x, exponent))
    power = power.minimum(700.0 * parts).maximum(-700.0 * parts)
    part, two = (power * (1 / parts)).floor(), made.like(2.0)
    for one in [power - part * (parts - 1.0), *[part] * (parts - 1)]:
        made = made * two.power(one)
    return made.cast(dtype).value


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "erfc.default": _computed(_erfc),
    "special_erfcx.default": _computed(_erfcx),
    "erfinv.default": _computed(_erfinv),
    "lgamma.default": _computed(_lgamma, "float64"),
    "digamma.default": _computed(_digamma, "float64"),
    "nextafter.default": _next,
    "ldexp.Tensor": _scaled,
}
"""By the names of torch's ops."""
