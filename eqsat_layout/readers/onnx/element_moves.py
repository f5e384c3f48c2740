"""Ops of ONNX that move elements to where numbers say: windows back into an image, rows into a cache.

In: a node's inputs and attributes. Out: its result, in Relax.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError


def image_of_windows(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``Col2Im``: the sum of all windows that hold an element."""
    data, image, block = inputs[:3]
    if not isinstance(image, ir.GenericConst) or not isinstance(block, ir.GenericConst):
        raise EqsatError("Col2Im to a size that is known at run time only is not done")
    extents, sizes = image.value.numpy().tolist(), block.value.numpy().tolist()
    rank = len(extents)
    ones, zeros = [1] * rank, [0] * 2 * rank
    strides, dilations = (list(attributes.get(name) or ones) for name in ("strides", "dilations"))
    pads = list(attributes.get("pads") or zeros)
    counts = [
        (extents[i] + pads[i] + pads[rank + i] - dilations[i] * (sizes[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    batch, wide, _ = data.ty.shape.values

    def image_from(x: Any) -> Any:
        axes = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(sizes)]

        def element(*at: Any) -> Any:
            starts = [at[2 + i] + pads[i] - axes[i] * dilations[i] for i in range(rank)]
            inside = tirx.all(
                *(tirx.all(s >= 0, s % t == 0, s < t * n) for s, t, n in zip(starts, strides, counts, strict=True))
            )
            window: Any = 0
            place: Any = at[1]
            for i in range(rank):
                window = window * counts[i] + starts[i] // strides[i]
                place = place * sizes[i] + axes[i]
            zero = tirx.const(0, x.dtype)
            return te.sum(tirx.if_then_else(inside, x(at[0], place, window), zero), axis=axes)

        return te.compute([batch, wide // math.prod(sizes), *extents], element, "image")

    return builder.emit_te(image_from, data, primfunc_name_hint="col2im")


def cache_updated(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``TensorScatter``: each batch's rows at the place that it says, around the end where that is asked for."""
    cache, update, starts = inputs[:3]
    rank = len(cache.ty.shape)
    axis, is_ring = int(attributes.get("axis", -2)) % rank, attributes.get("mode", b"linear") == b"circular"
    most, count = cache.ty.shape.values[axis], update.ty.shape.values[axis]

    def written(old: Any, new: Any, *first: Any) -> Any:
        def element(*at: Any) -> Any:
            row = at[axis] - (tirx.Cast("int64", first[0](at[0])) if first else 0)
            row = tirx.Select(row < 0, row + most, row) if is_ring else row  # no row begins beyond the end
            place = (*at[:axis], row, *at[axis + 1 :])
            return tirx.if_then_else(tirx.all(row >= 0, row < count), new(*place), old(*at))

        return te.compute(old.shape, element, "written")

    given = [cache, update] if starts is None else [cache, update, starts]
    return builder.emit_te(written, *given, primfunc_name_hint="tensor_scatter")


def tiled(builder: relax.BlockBuilder, data: Any, times: Any) -> Any:
    """``Tile`` as often along each axis as sizes of the model say."""
    counts = list(times.values)
    shape = list(data.ty.shape.values)
    if len(counts) != len(shape):
        raise EqsatError(f"Tile of {len(shape)} axes with {len(counts)} numbers is not done")

    def tiled(x: Any) -> Any:
        extents = [extent * count for extent, count in zip(shape, counts, strict=True)]
        return te.compute(extents, lambda *at: x(*map(tirx.floormod, at, shape)), "tiled")

    return builder.emit_te(tiled, data, primfunc_name_hint="tile")
