"""Ops of torchvision, boxes of an image and windows that are moved; and samples of volumes.

In: an importer's builder, values of a node's arguments. Out: what the node gives, in Relax.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.deformed import deformed
from eqsat_layout.readers.layers.dtypes import as_dtype


def _boxes(
    b: relax.BlockBuilder,
    data: Any,
    boxes: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """``roi_align``: the mean of samples in each part of each box."""
    if not isinstance(pooled_height, int) or not isinstance(pooled_width, int):
        raise EqsatError("roi_align to a size that is known at run time only is not done")
    size = (pooled_height, pooled_width)
    ratio = sampling_ratio if sampling_ratio > 0 else -1
    if aligned:  # TVM only lets boxes be smaller than a pixel then
        moved = np.full(5, -0.5 / spatial_scale)
        moved[0] = 0  # which image
        boxes = b.emit(relax.op.add(boxes, relax.const(moved.astype("float32"), str(boxes.ty.dtype))))
    return b.emit(relax.op.vision.roi_align(data, boxes, size, spatial_scale, ratio, aligned))


def _deformed(
    b: relax.BlockBuilder,
    data: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    return deformed(
        b,
        data,
        weight,
        offset,
        mask if use_mask else None,
        bias,
        strides=(stride_h, stride_w),
        pads=(pad_h, pad_w),
        dilations=(dilation_h, dilation_w),
        groups=groups,
        parts=offset_groups,
    )


_METHODS: Final = ("bilinear", "nearest")
_BORDERS: Final = ("zeros", "border", "reflection")


def _samples_of_volumes(
    b: relax.BlockBuilder, data: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """``grid_sample`` of (N, C, D, H, W) at places along the last axis; of 16 bits in float32."""
    op, dtype = relax.op, str(data.ty.dtype)
    if dtype != "float64":
        data, grid = (as_dtype(b, x, "float32") for x in (data, grid))
    places = b.emit(op.permute_dims(grid, [0, 4, 1, 2, 3]))
    method, border = _METHODS[interpolation_mode], _BORDERS[padding_mode]
    made = b.emit(op.image.grid_sample(data, places, method, "NCDHW", border, align_corners))
    return as_dtype(b, made, dtype)


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "roi_align.default": _boxes,
    "deform_conv2d.default": _deformed,
    "grid_sampler_3d.default": _samples_of_volumes,
}
"""By the names of the ops."""
