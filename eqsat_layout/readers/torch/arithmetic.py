"""Arithmetic that Relax has too, where torch's gives other numbers: of NaN, of bounds in the wrong order, of quotients
that are rounded, of bytes.

In: an importer's builder, operands. Out: results in Relax, of the type that torch computes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.whole_powers import whole_power

_Element = Callable[[Any, Any], Any]


def differs(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    """``ne``: a NaN differs from all, which TVM's own comparison says on devices only."""
    if not _is_float(one):
        return b.emit(relax.op.not_equal(one, other))
    return b.emit(relax.op.logical_not(b.emit(relax.op.equal(one, other))))


def _exclusive(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    """``logical_xor``, of which numbers are true that are not 0, NaN too."""
    return b.emit(relax.op.logical_xor(*(_as_truth(b, x) for x in (one, other))))


def _as_truth(b: relax.BlockBuilder, x: Any) -> Any:
    dtype = str(x.ty.dtype)
    return x if dtype == "bool" else differs(b, x, relax.const(0, dtype))


def _negated(b: relax.BlockBuilder, x: Any) -> Any:
    """``neg``: unsigned numbers wrap around; TVM multiplies by a -1 that they do not have."""
    dtype = str(x.ty.dtype)
    return b.emit(relax.op.subtract(relax.const(0, dtype), x) if dtype.startswith("u") else relax.op.negative(x))


def _clamped(b: relax.BlockBuilder, x: Any, min: Any = None, max: Any = None) -> Any:
    """The lower bound first: where it is above the upper one, the upper one is the result."""
    numbers = [one for one in (min, max) if isinstance(one, int | float)]
    if numbers and numbers == [one for one in (min, max) if one is not None] and _is_float(x):
        least, most = -math.inf if min is None else min, math.inf if max is None else max
        return b.emit(relax.op.clip(x, least if least <= most else most, most))
    for bound, op in ((min, relax.op.maximum), (max, relax.op.minimum)):
        if isinstance(bound, int | float):
            x = b.emit(op(x, relax.const(bound, str(x.ty.dtype))))
        elif bound is not None:
            x = b.emit(op(x, as_dtype(b, bound, str(x.ty.dtype))))
    return x


def _divided(b: relax.BlockBuilder, one: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """``div``, and rounded: down of the rest, so that ``1 // 0.1`` is 9."""
    if rounding_mode == "floor":
        return _divided_down(b, one, other)
    made = b.emit(relax.op.divide(one, other))
    if rounding_mode is None:
        return made
    if rounding_mode != "trunc":
        raise EqsatError(f"a division with rounding_mode={rounding_mode} is not done")
    return b.emit(relax.op.trunc(made))


def _divided_down(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    if not _is_float(one):
        return b.emit(relax.op.floor_divide(one, other))
    return _of_elements(b, one, other, _quotient, "floor_divide")


def _rest(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    """``remainder``, of the sign of the divisor."""
    if not _is_float(one):
        return b.emit(relax.op.floor_mod(one, other))
    return _of_elements(b, one, other, _remainder, "remainder")


def _quotient(a: Any, b: Any) -> Any:
    none, unit = tirx.const(0.0, a.ty.dtype), tirx.const(1.0, a.ty.dtype)
    rest, plain = tirx.truncmod(a, b), a / b
    made = (a - rest) / b
    made = made - tirx.Select(_is_beyond(rest, b), unit, none)
    down = tirx.floor(made)
    down = down + tirx.Select(made - down > tirx.const(0.5, a.ty.dtype), unit, none)
    return tirx.Select(b == none, plain, tirx.Select(made == none, tirx.copysign(none, plain), down))


def _remainder(a: Any, b: Any) -> Any:
    rest = tirx.truncmod(a, b)
    return tirx.Select(_is_beyond(rest, b), rest + b, rest)


def _is_beyond(rest: Any, divisor: Any) -> Any:
    """Whether a rest is of the other sign than the divisor."""
    none = tirx.const(0.0, rest.ty.dtype)
    return tirx.Or(tirx.And(rest < none, divisor > none), tirx.And(rest > none, divisor < none))


def _hypotenuse(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
    return _of_elements(b, one, other, _length, "hypot")


def _length(a: Any, b: Any) -> Any:
    """Of numbers whose squares are infinite or 0 too; an infinite side counts more than a NaN."""
    a, b = tirx.abs(a), tirx.abs(b)
    none, unit, most = (tirx.const(value, a.ty.dtype) for value in (0.0, 1.0, math.inf))
    longer, shorter = tirx.Select(a > b, a, b), tirx.Select(a > b, b, a)
    ratio = shorter / tirx.Select(longer == none, unit, longer)
    made = longer * tirx.sqrt(unit + ratio * ratio)
    return tirx.Select(tirx.Or(a == most, b == most), most, made)


def power(b: relax.BlockBuilder, base: Any, exponent: Any) -> Any:
    """Of operands of one type."""
    return b.emit(relax.op.power(base, exponent)) if _is_float(base) else whole_power(b, base, exponent)


def _sign(b: relax.BlockBuilder, x: Any) -> Any:
    """``sign``, of unsigned numbers too: TVM looks for a -1 that they do not have."""
    dtype = str(x.ty.dtype)
    if dtype == "bool" or not dtype.startswith("u"):
        return x if dtype == "bool" else b.emit(relax.op.sign(x))
    return as_dtype(b, differs(b, x, relax.const(0, dtype)), dtype)


def _of_elements(b: relax.BlockBuilder, one: Any, other: Any, element: _Element, name: str) -> Any:
    """Narrow floats are computed in float32, as torch does."""
    dtype = str(one.ty.dtype)
    wide = dtype if dtype == "float64" else "float32"
    extents = b.normalize(relax.op.add(one, other)).ty.shape
    both = [b.emit(relax.op.broadcast_to(as_dtype(b, value, wide), extents)) for value in (one, other)]

    def compute(x: Any, y: Any) -> Any:
        return te.compute(x.shape, lambda *at: element(x(*at), y(*at)), name)

    return as_dtype(b, b.emit_te(compute, *both, primfunc_name_hint=name), dtype)


def _is_float(x: Any) -> bool:
    return str(x.ty.dtype).startswith(("float", "bfloat"))


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "ne.Tensor": differs,
    "ne.Scalar": differs,
    "logical_xor.default": _exclusive,
    "neg.default": _negated,
    "sign.default": _sign,
    "pow.Tensor_Tensor": power,
    "pow.Scalar": power,
    "hypot.default": _hypotenuse,
    "clamp.default": _clamped,
    "clamp.Tensor": _clamped,
    "div.Tensor_mode": _divided,
    "floor_divide.default": _divided_down,
    "remainder.Tensor": _rest,
    "remainder.Scalar": _rest,
    "remainder.default": _rest,
}
"""By the names of torch's ops."""
