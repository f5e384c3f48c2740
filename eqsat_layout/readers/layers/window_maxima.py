"""Maxima of windows with the places where they were, which TVM's frontends don't take.

In: data of shape (batch, channels, extents...), windows. Out: values and flat places, as one Relax tuple. Of equal
numbers the first counts; a place is counted in the data of one channel, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx


@dataclass(frozen=True)
class Windows:
    """The windows along each axis: size, stride, padding before, dilation, and their number."""

    sizes: Sequence[int]
    strides: Sequence[int]
    before: Sequence[int]
    dilations: Sequence[int]
    counts: Sequence[Any]


def window_count(
    extent: Any, size: int, stride: int, padding: int, dilation: int, *, is_ceil: bool, before: int = 0
) -> Any:
    """Windows along an axis; of those that are cut off, ``is_ceil`` takes the one that begins in the data."""
    rest = extent + padding - dilation * (size - 1) - 1
    if not is_ceil:
        return rest // stride + 1
    number = (rest + stride - 1) // stride + 1
    if isinstance(number, int):
        return number - 1 if (number - 1) * stride >= extent + before else number
    return tirx.if_then_else((number - 1) * stride >= extent + before, number - 1, number)


def window_maxima(builder: relax.BlockBuilder, data: Any, windows: Windows) -> tuple[Any, Any]:
    """Values, and places as int64."""
    dtype = str(data.ty.dtype)
    if dtype == "bfloat16":  # which TVM can't compute beside whole numbers
        values, places = window_maxima(builder, builder.emit(relax.op.astype(data, "float32")), windows)
        return builder.emit(relax.op.astype(values, dtype)), places
    made = builder.emit_te(lambda x: _maxima(x, windows), data, primfunc_name_hint="max_pool_places")
    places = builder.emit(relax.TupleGetItem(made, 0))
    return builder.emit(relax.TupleGetItem(made, 1)), places


def _maxima(x: Any, windows: Windows) -> list[Any]:
    extents, rank = list(x.shape)[2:], len(windows.sizes)
    lowest = tirx.min_value(x.dtype)
    axes = [te.reduce_axis((0, size), f"w{i}") for i, size in enumerate(windows.sizes)]

    def element(*at: Any) -> tuple[Any, Any]:
        places = [
            at[2 + i] * windows.strides[i] - windows.before[i] + axes[i] * windows.dilations[i] for i in range(rank)
        ]
        inside = tirx.all(*(tirx.all(p >= 0, p < e) for p, e in zip(places, extents, strict=True)))
        flat: Any = 0
        for place, extent in zip(places, extents, strict=True):
            flat = flat * extent + place
        position = tirx.if_then_else(inside, tirx.Cast("int64", flat), tirx.IntImm("int64", -1))
        return position, tirx.if_then_else(inside, x(*at[:2], *places), lowest)

    def better(one: Any, other: Any) -> tuple[Any, Any]:
        one_is_nan, other_is_nan = (_is_nan(value) for _, value in (one, other))
        first = tirx.all(other[0] >= 0, one[0] > other[0])
        takes = tirx.any(
            one[0] < 0,
            tirx.all(other[0] >= 0, tirx.any(other[1] > one[1], tirx.all(other_is_nan, tirx.Not(one_is_nan)))),
            tirx.all(first, other[1] == one[1]),
        )
        return tirx.Select(takes, other[0], one[0]), tirx.Select(takes, other[1], one[1])

    def nothing(_: Any, dtype: Any) -> tuple[Any, Any]:
        return tirx.IntImm("int64", -1), tirx.min_value(dtype)

    reducer = te.comm_reducer(better, nothing, name="first_maximum")
    return list(
        te.compute([*list(x.shape)[:2], *windows.counts], lambda *at: reducer(element(*at), axis=axes), "maxima")
    )


def _is_nan(value: Any) -> Any:
    return tirx.isnan(value) if str(value.ty.dtype).startswith("float") else tirx.const(False, "bool")


def flat_indices(
    places: Any, extents: Sequence[int], channels: int, builder: relax.BlockBuilder, *, turned: bool
) -> Any:
    """Flat places of one channel as ONNX counts them: over the whole tensor, and column by column where ``turned``."""
    return builder.emit_te(
        lambda x: te.compute(x.shape, lambda *at: _counted(x, at, extents, channels, turned=turned), "places"),
        places,
        primfunc_name_hint="max_pool_places_of_all",
    )


def _counted(x: Any, at: Any, extents: Sequence[int], channels: int, *, turned: bool) -> Any:
    place = x(*at)
    start = (at[0] * channels + at[1]) * math.prod(extents)
    if not turned:
        return start + place
    rest, parts = place, []
    for extent in reversed(extents):
        parts.append(rest % extent)
        rest = rest // extent
    flat: Any = 0
    for part, extent in zip(parts, reversed(extents), strict=True):  # the last axis is the slowest
        flat = flat * extent + part
    return start + flat
