"""Powers of whole numbers, of which TVM's kernel takes floats only.

In: a builder, a base of Relax, an exponent. Out: the power in the base's type, which wraps around as products do.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx


def whole_power(builder: relax.BlockBuilder, base: Any, exponent: Any) -> Any:
    """``exponent``: a number that is not negative, or a tensor of the base's type. Negative powers lose their fraction:
    those of 1 and -1 are such, and all others 0."""
    if isinstance(exponent, int):
        return _known_power(builder, base, exponent)
    shape = builder.normalize(relax.op.add(base, exponent)).ty.shape
    both = [builder.emit(relax.op.broadcast_to(one, shape)) for one in (base, exponent)]

    return builder.emit_te(_powers, *both, primfunc_name_hint="whole_power")


def _known_power(builder: relax.BlockBuilder, base: Any, exponent: int) -> Any:
    """Products of squares."""
    made, square = None, base
    while exponent:
        if exponent & 1:
            made = square if made is None else builder.emit(relax.op.multiply(made, square))
        exponent >>= 1
        if exponent:
            square = builder.emit(relax.op.multiply(square, square))
    return builder.emit(relax.op.ones_like(base)) if made is None else made


def _powers(base: Any, exponent: Any) -> Any:
    """From the exponent's highest bit on: the square of what there is, times the base where the bit is set."""
    dtype = str(base.dtype)
    none, unit, less = (tirx.const(value, dtype) for value in (0, 1, -1 if dtype.startswith("i") else 0))
    bits = int(dtype.removeprefix("u").removeprefix("int")) - (less.value < 0)
    bit = te.reduce_axis((0, bits), "bit")
    times = te.comm_reducer(lambda made, one: made * made * one, lambda _: unit, "power")

    def factor(*at: Any) -> Any:
        return tirx.Select((exponent(*at) >> tirx.Cast(dtype, bits - 1 - bit)) & unit == unit, base(*at), unit)

    made = te.compute(base.shape, lambda *at: times(factor(*at), axis=bit), "powers")
    if less.value == 0:
        return made

    def signed(*at: Any) -> Any:
        own, power = base(*at), exponent(*at)
        of_less = tirx.Select(power & unit == unit, less, unit)
        small = tirx.Select(own == unit, unit, tirx.Select(own == less, of_less, none))
        return tirx.Select(power < none, small, made(*at))

    return te.compute(base.shape, signed, "whole_power")
