"""Floats that become indices between two bounds, as those of resizes do, in 32 bits.

In: PrimFuncs. Out: the same, where a float that is cast to 64 bits and kept between constants is kept between larger
ones before. Of a cast nothing is known, so the indices that it is part of, and those that it is made of, had 64 bits,
whatever the bounds.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.tir.structural import body_pass

_WIDE: Final = "int64"
_NARROW: Final = "int32"
_LARGEST: Final = {"float16": 1 << 15, "float32": 1 << 30, "float64": 1 << 30}
"""What a float is kept within: exact in its type, and with a constant added still a number of 32 bits."""


def clamped_casts() -> Any:
    """A pass."""
    rules = ((tirx.Min, _narrowed), (tirx.Max, _narrowed))
    return body_pass("ClampedCasts", *rules)


def _narrowed(outer: Any) -> Any:
    """``max(min(cast(f) + k, most), least)``, or the other way round, in fewer bits."""
    inner, bound = _and_constant(outer)
    if type(inner) is not (tirx.Min if isinstance(outer, tirx.Max) else tirx.Max):
        return outer
    core, other = _and_constant(inner)
    cast, added = _and_constant(core) if isinstance(core, tirx.Add | tirx.Sub) else (core, 0)
    if not isinstance(cast, tirx.Cast) or str(cast.ty.dtype) != _WIDE:
        return outer
    if bound is None or other is None or added is None:
        return outer
    largest = _LARGEST.get(str(cast.value.ty.dtype))
    if largest is None or max(abs(bound), abs(other)) + abs(added) > largest:
        return outer
    limits = [tirx.FloatImm(cast.value.ty.dtype, float(sign * largest)) for sign in (1, -1)]
    value: Any = tirx.Cast(_NARROW, tirx.Max(tirx.Min(cast.value, limits[0]), limits[1]))
    if added:
        value = type(core)(value, tirx.IntImm(_NARROW, added))
    value = type(inner)(value, tirx.IntImm(_NARROW, other))
    return tirx.Cast(_WIDE, type(outer)(value, tirx.IntImm(_NARROW, bound)))


def _and_constant(node: Any) -> tuple[Any, int | None]:
    """The operands of a binary node, the constant last, where it has one; of a difference it is what is taken off."""
    if not isinstance(node, tirx.Sub) and isinstance(node.a, tirx.IntImm):
        return node.b, int(node.a)
    return node.a, int(node.b) if isinstance(node.b, tirx.IntImm) else None
