"""Arithmetic of an ONNX graph on the sizes of its tensors.

In: an op's attributes, and its operands as arrays of expressions. Out: its results as such arrays; None where they are
not known. What is done with them: :mod:`eqsat_layout.readers.onnx.known_sizes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Final

import numpy as np
from tvm import tirx

MOST: Final = 64
"""Elements: shapes have fewer."""

_EXACT: Final = 1 << 8
"""Of a size up to 65535 and a fraction with a numerator up to this, float32 holds the product."""

_NUMBERS: Final = {1: "float32", 6: "int32", 7: "int64", 9: "bool"}
"""ONNX's numbers of types."""

_INTEGERS: Final = ("int32", "int64")


@dataclass(frozen=True)
class Sizes:
    """``elements``: an array of expressions of int64 for integers, of :class:`Ratio` for floats, of conditions for
    booleans."""

    dtype: str
    elements: Any

    def of(self, elements: Any) -> Sizes:
        """The same type."""
        return Sizes(self.dtype, elements)


@dataclass(frozen=True)
class Ratio:
    """A float that is ``top / bottom``."""

    top: Any
    bottom: int = 1


Maker = Callable[..., list[Sizes] | None]


def small_constant(array: Any) -> Sizes | None:
    """None for what is large, or for floats whose products with sizes are rounded."""
    if array.size > MOST:
        return None
    made = np.empty(array.shape, object)
    for at, number in np.ndenumerate(array):
        made[at] = _element(array.dtype.name, number.item())
    return None if any(one is None for one in made.reshape(-1)) else Sizes(array.dtype.name, made)


def _element(dtype: str, number: Any) -> Any:
    if dtype in _INTEGERS:
        return whole_number(number)
    if dtype == "bool":
        return tirx.const(bool(number), "bool")
    if not np.isfinite(number):
        return None
    ratio = Fraction(number)
    return (
        Ratio(whole_number(ratio.numerator), ratio.denominator)
        if _is_exact(ratio.numerator, ratio.denominator)
        else None
    )


def _is_exact(top: int, bottom: int) -> bool:
    return abs(top) <= _EXACT and bottom <= _EXACT


def whole_number(number: int) -> Any:
    return tirx.IntImm("int64", number)


def _elementwise(function: Callable[..., Any], result: str = "") -> Maker:
    """``function`` gives None for what is not known. ``result``: the type where it is another one."""

    def make(_: dict[str, Any], *given: Sizes) -> list[Sizes] | None:
        dtype = given[-1].dtype
        try:
            spread = np.broadcast_arrays(*(value.elements for value in given))
        except ValueError:
            return None
        made = np.empty(spread[0].shape, object)
        for at in np.ndindex(made.shape):
            made[at] = function(dtype, *(one[at] for one in spread))
        known = made.size <= MOST and not any(one is None for one in made.reshape(-1))
        return [Sizes(result or dtype, made)] if known else None

    return make


def _of_integers(function: Callable[..., Any], result: str = "") -> Maker:
    return _elementwise(lambda dtype, *given: function(*given) if dtype in _INTEGERS else None, result)


def _of_conditions(function: Callable[..., Any]) -> Maker:
    return _elementwise(lambda dtype, *given: function(*given) if dtype == "bool" else None)


def _sum(sign: int) -> Callable[..., Any]:
    def make(dtype: str, one: Any, other: Any) -> Any:
        if dtype in _INTEGERS:
            return one + other * sign
        if dtype != "float32":
            return None
        return _bounded(one.top * other.bottom + other.top * (sign * one.bottom), one.bottom * other.bottom)

    return make


def _product(dtype: str, one: Any, other: Any) -> Any:
    if dtype in _INTEGERS:
        return one * other
    if dtype != "float32" or not any(isinstance(x.top, tirx.IntImm) for x in (one, other)):
        return None
    return _bounded(one.top * other.top, one.bottom * other.bottom)


def _quotient(dtype: str, one: Any, other: Any) -> Any:
    """The quotient; integers are rounded towards 0, as ONNX does it: a difference of sizes may be negative."""
    if dtype in _INTEGERS:
        return tirx.truncdiv(one, other)
    if dtype != "float32" or not isinstance(other.top, tirx.IntImm) or int(other.top) <= 0:
        return None
    return _bounded(one.top * other.bottom, one.bottom * int(other.top))


def _bounded(top: Any, bottom: int) -> Ratio | None:
    return Ratio(top, bottom) if bottom <= _EXACT else None


def _rounded(up: bool) -> Callable[..., Any]:
    def make(dtype: str, one: Any) -> Any:
        if dtype != "float32":
            return None
        return Ratio(tirx.floordiv(one.top + (one.bottom - 1 if up else 0), one.bottom))

    return make


def _cast(attributes: dict[str, Any], given: Sizes) -> list[Sizes] | None:
    dtype = _NUMBERS.get(int(attributes.get("to", 0)))
    if dtype is None or (dtype != given.dtype and "bool" in (dtype, given.dtype)):
        return None
    if (dtype == "float32") == (given.dtype == "float32"):
        return [Sizes(dtype, given.elements)]
    made = np.empty(given.elements.shape, object)
    for at, one in np.ndenumerate(given.elements):
        made[at] = Ratio(one) if dtype == "float32" else tirx.truncdiv(one.top, whole_number(one.bottom))
    return [Sizes(dtype, made)]


def _chosen(_: dict[str, Any], condition: Sizes, one: Sizes, other: Sizes) -> list[Sizes] | None:
    if one.dtype not in _INTEGERS:
        return None
    try:
        tests, *both = np.broadcast_arrays(condition.elements, one.elements, other.elements)
    except ValueError:
        return None
    made = np.empty(tests.shape, object)
    for at, test in np.ndenumerate(tests):
        made[at] = tirx.Select(test, both[0][at], both[1][at])
    return [one.of(made)]


def _folded(function: Callable[[Any, Any], Any], first: int) -> Maker:
    """Along the only axis."""

    def make(attributes: dict[str, Any], data: Sizes, axes: Sizes | None = None) -> list[Sizes] | None:
        if data.elements.ndim != 1 or data.dtype not in _INTEGERS:
            return None
        total: Any = whole_number(first)
        for one in data.elements:
            total = function(total, one)
        made = np.empty((1,) if attributes.get("keepdims", 1) else (), object)
        made[...] = total
        return [data.of(made)]

    return make


def _rest(attributes: dict[str, Any], one: Sizes, other: Sizes) -> list[Sizes] | None:
    return _of_integers(tirx.truncmod if attributes.get("fmod", 0) else _floor_rest)(attributes, one, other)


def _floor_rest(one: Any, other: Any) -> Any:
    """What is left has the sign of the divisor; of a positive one TVM knows how large it is."""
    is_negative = isinstance(other, tirx.IntImm) and int(other) < 0
    return (
        whole_number(0) - tirx.floormod(whole_number(0) - one, whole_number(-int(other)))
        if is_negative
        else tirx.floormod(one, other)
    )


MAKERS: Final[dict[str, Maker]] = {
    "Add": _elementwise(_sum(1)),
    "Sub": _elementwise(_sum(-1)),
    "Mul": _elementwise(_product),
    "Div": _elementwise(_quotient),
    "Mod": _rest,
    "Max": _of_integers(lambda *given: reduce(tirx.Max, given)),
    "Min": _of_integers(lambda *given: reduce(tirx.Min, given)),
    "Neg": _of_integers(lambda one: whole_number(0) - one),
    "Abs": _of_integers(lambda one: tirx.Max(one, whole_number(0) - one)),
    "Floor": _elementwise(_rounded(up=False)),
    "Ceil": _elementwise(_rounded(up=True)),
    "Identity": lambda _, one: [one],
    "Cast": _cast,
    "Equal": _of_integers(tirx.EQ, "bool"),
    "Greater": _of_integers(tirx.GT, "bool"),
    "GreaterOrEqual": _of_integers(tirx.GE, "bool"),
    "Less": _of_integers(tirx.LT, "bool"),
    "LessOrEqual": _of_integers(tirx.LE, "bool"),
    "Not": _of_conditions(tirx.Not),
    "And": _of_conditions(tirx.And),
    "Or": _of_conditions(tirx.Or),
    "Where": _chosen,
    "ReduceProd": _folded(lambda one, other: one * other, 1),
    "ReduceSum": _folded(lambda one, other: one + other, 0),
}
"""By op: results of attributes and operands."""
