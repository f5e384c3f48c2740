"""Scans in pieces, all elements at once: what is in front of a piece, and what of it is in front of an element.

In: a call of Relax's ``cumsum`` or ``cumprod``. Out: three reductions; what is in front of many pieces is such a scan
itself. An element adds up some hundred numbers at most, where a loop along the row would wait for each before the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from tvm import te, tirx, topi

from eqsat_layout.targets.schedules.accesses import as_int

_SHORT: Final = 32
"""Elements that one thread is fast enough for."""
_PIECE: Final = 64
"""Elements of a piece at most."""
_NARROW: Final = ("float16", "bfloat16")
"""They are added up in single precision, and rounded once."""


Combine: TypeAlias = Callable[[Any, Any], Any]


def may_be_in_pieces(name: str, call: Any, *, in_order: bool) -> bool:
    """It is a scan along a long axis whose order is free: of integers, or ``in_order`` is false."""
    if name not in SCANS:
        return False
    shape = call.args[0].ty.shape
    extents = shape if call.attrs.axis is None else [shape[_axis(shape, call.attrs)]]
    extent = as_int(math.prod(extents))
    is_free = not in_order or "int" in str(call.ty.dtype)
    return is_free and (extent is None or extent > _SHORT)


def _axis(shape: Any, attrs: Any) -> int:
    return 0 if attrs.axis is None else int(attrs.axis) % len(shape)


def _scanned(combine: Combine, neutral: int, x: Any, attrs: Any) -> Any:
    x = topi.reshape(x, [math.prod(x.shape)]) if attrs.axis is None else x
    axis, dtype = _axis(x.shape, attrs), str(attrs.dtype or x.dtype)
    wide = "float32" if dtype in _NARROW else dtype
    found = _in_pieces(combine, tirx.const(neutral, wide), x, axis, is_exclusive=bool(attrs.exclusive))
    return te.compute(x.shape, lambda *at: found(at).astype(dtype), "scan")


def _in_pieces(combine: Combine, nothing: Any, x: Any, axis: int, *, is_exclusive: bool) -> Callable[[Any], Any]:
    """From the place of an element to what is combined up to it."""
    wide = str(nothing.ty.dtype)
    extent = x.shape[axis]
    known = as_int(extent)
    piece = _PIECE if known is None else min(_PIECE, math.isqrt(known - 1) + 1)
    count = (extent + piece - 1) // piece
    reduced = te.comm_reducer(combine, lambda of: tirx.const(nothing.value, of))

    def moved(at: Any, place: Any) -> list[Any]:
        return [place if number == axis else index for number, index in enumerate(at)]

    def element(at: Any, place: Any, condition: Any) -> Any:
        return tirx.if_then_else(condition, x(*moved(at, place)).astype(wide), nothing)

    shape = [count if number == axis else size for number, size in enumerate(x.shape)]
    inside, before, own = (te.reduce_axis((0, size), name) for size, name in ((piece, "i"), (count, "b"), (piece, "o")))

    def whole(*at: Any) -> Any:
        place = at[axis] * piece + inside
        return reduced(element(at, place, place < extent), axis=inside)

    pieces = te.compute(shape, whole, "pieces")

    def in_front(*at: Any) -> Any:
        return reduced(tirx.if_then_else(before < at[axis], pieces(*moved(at, before)), nothing), axis=before)

    def up_to(*at: Any) -> Any:
        place, here = at[axis] // piece * piece + own, at[axis]
        return reduced(element(at, place, place < here if is_exclusive else place <= here), axis=own)

    parts = te.compute(x.shape, up_to, "parts")
    if known is not None and known > _PIECE**2:
        inner = _in_pieces(combine, nothing, pieces, axis, is_exclusive=True)
        fronts = te.compute(shape, lambda *at: inner(at), "fronts")
    else:
        fronts = te.compute(shape, in_front, "fronts")
    return lambda at: combine(fronts(*moved(at, at[axis] // piece)), parts(*at))


def _cumsum(x: Any, attrs: Any) -> Any:
    return _scanned(lambda a, b: a + b, 0, x, attrs)


def _cumprod(x: Any, attrs: Any) -> Any:
    return _scanned(lambda a, b: a * b, 1, x, attrs)


SCANS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"relax.cumsum": _cumsum, "relax.cumprod": _cumprod}
"""From a tensor and the op's attributes to its result."""
