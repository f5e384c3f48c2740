"""Resizes as torch does them, where TVM's frontend takes other places.

In: a builder, data of shape (batch, channels, extents...), sizes or scales. Out: the resized data, in Relax.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.resampling import Filter, in_steps, resampled
from eqsat_layout.readers.layers.resizing import cropped, with_ends_repeated


def by_scale(builder: relax.BlockBuilder, data: Any, scale: Any, resize: Any) -> Any:
    scales = [scale] * (len(data.ty.shape) - 2) if isinstance(scale, int | float) else list(scale)
    data, ends = with_ends_repeated(builder, data, [1, 1, *scales])
    made = resize(data, scales)
    return builder.emit(cropped(builder, made, ends)) if ends else made


def nearest(builder: relax.BlockBuilder, data: Any, size: Any, scales: Any) -> Any:
    """Whole numbers of repetitions as a resize, others as the elements that torch itself takes."""
    extents = list(data.ty.shape)[2:]
    given = [(extent, size and size[i], scales and scales[i]) for i, extent in enumerate(extents)]
    sizes = [_larger(*one) for one in given]
    if all(one is not None for one in sizes):
        means = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
        return builder.emit(relax.op.image.resize2d(data, tuple(sizes), None, "NCHW", "nearest_neighbor", **means))
    for axis, one in enumerate(map(_places, *zip(*given, strict=True))):
        data = builder.emit(relax.op.take(data, relax.const(one, "int64"), axis + 2))
    return data


def bytes_resized(builder: relax.BlockBuilder, data: Any, size: Any, scale: Any, corners: bool) -> Any:
    """Linear, in whole numbers along one axis and then along the other one, rounded to bytes each time: TVM drops
    fractions."""
    extents, rows = list(data.ty.shape)[2:], {}
    scales = scale if isinstance(scale, list | tuple) else [None if size else scale] * len(extents)
    for at, (extent, by) in enumerate(zip(extents, scales, strict=True)):
        if not isinstance(extent, tirx.IntImm) or (size and not isinstance(size[at], int)):
            raise EqsatError("a resize of bytes of unknown size is not done")
        count = size[at] if size else int(int(extent) * by)
        steps = np.arange(count)
        if corners:
            places = steps * ((int(extent) - 1) / max(count - 1, 1))
        else:
            places = (steps + 0.5) * (1 / by if by else int(extent) / count) - 0.5
        weights = Filter("linear", excludes=False).weights(places.clip(0, int(extent) - 1), int(extent), 1.0)
        rows[at + 2] = in_steps(weights)
    return resampled(builder, data, rows)


def _places(extent: Any, size: Any, scale: Any) -> np.ndarray[Any, Any]:
    """Which of ``extent`` elements torch takes."""
    import torch

    if not isinstance(extent, tirx.IntImm) or not isinstance(size, int | None):
        raise EqsatError(f"a resize of {extent} elements by {scale}, which may give no whole number, is not done")
    elements = torch.arange(int(extent), dtype=torch.float64)[None, None]
    taken = torch.nn.functional.interpolate(elements, size=size, scale_factor=scale)
    places: np.ndarray[Any, Any] = taken[0, 0].to(torch.int64).numpy()
    return places


def _larger(extent: Any, size: Any, scale: Any) -> Any:
    """How many elements there are where each is repeated, or as many as some size says; else None."""
    if scale is not None:
        return extent * int(scale) if scale == int(scale) else None
    is_known = isinstance(extent, tirx.IntImm) and isinstance(size, int)
    return size if not is_known or size % int(extent) == 0 else None
