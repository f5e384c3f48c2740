"""Parts of tensors that are written: every so many elements of an axis, diagonals, and what strides in memory say.

In: an importer's builder, tensors, sizes that may be symbolic. Out: the tensor with its part written, or the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from eqsat_layout.readers.torch.slices import bounds_from_start


def steps_written(b: relax.BlockBuilder, data: Any, source: Any, axis: int, span: tuple[Any, Any, Any]) -> Any:
    """``data[start:end:step] = source`` along an axis, whatever of it lies inside."""
    start, end = bounds_from_start(data.ty.shape.values[axis], *span[:2])
    step, start = span[2], tirx.max(start, 0)

    def made(own: Any, new: Any, first: Any, last: Any) -> Any:
        def element(*at: Any) -> Any:
            far = at[axis] - first
            inside = tirx.all(far >= 0, at[axis] < last, tirx.floormod(far, step) == 0)
            return tirx.if_then_else(inside, new(*at[:axis], tirx.floordiv(far, step), *at[axis + 1 :]), own(*at))

        return te.compute(own.shape, element)

    return b.emit_te(made, data, source, start, end, primfunc_name_hint="slice_scatter")


def diagonal_written(b: relax.BlockBuilder, data: Any, source: Any, offset: int, axes: tuple[int, int]) -> Any:
    """``source``, whose last axis goes along it, in a diagonal of two axes."""
    one, other = axes

    def made(own: Any, new: Any) -> Any:
        def element(*at: Any) -> Any:
            rest = [place for axis, place in enumerate(at) if axis not in axes]
            on = at[other] - at[one] == offset
            return tirx.if_then_else(on, new(*rest, at[one] if offset >= 0 else at[other]), own(*at))

        return te.compute(own.shape, element)

    return b.emit_te(made, data, source, primfunc_name_hint="diagonal_scatter")


def strided(b: relax.BlockBuilder, memory: Any, size: Sequence[Any], strides: Sequence[Any], start: Any) -> Any:
    """The elements of ``memory``, which has one axis, in such steps."""

    def made(own: Any, extents: Any, steps: Any, first: Any) -> Any:
        return te.compute(list(extents), lambda *at: own(_place(at, steps, first)))

    return b.emit_te(made, memory, list(size), list(strides), start, primfunc_name_hint="as_strided")


def strided_places(b: relax.BlockBuilder, size: Sequence[Any], strides: Sequence[Any], start: Any) -> Any:
    """Where in memory they are."""

    def made(extents: Any, steps: Any, first: Any) -> Any:
        return te.compute(list(extents), lambda *at: tirx.Cast("int64", _place(at, steps, first)))

    return b.emit_te(made, list(size), list(strides), start, primfunc_name_hint="places")


def _place(at: Sequence[Any], strides: Sequence[Any], start: Any) -> Any:
    return sum((one * stride for one, stride in zip(at, strides, strict=True)), start)
