"""Torch's statistics: extremes with their places, variances with a correction, order.

In: data and axes in Relax. Out: values, or values and places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

from eqsat_layout.readers.layers.extremes import extreme
from eqsat_layout.readers.torch.types import Maker


def extremes(largest: bool) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: Any = (), keepdim: bool = False) -> Any:
        axes = [dim] if isinstance(dim, int) else list(dim) or None
        return extreme(b, data, axes, keeps=keepdim, is_max=largest)

    return make


def with_place(largest: bool) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: int, keepdim: bool = False) -> Any:
        places = relax.op.argmax if largest else relax.op.argmin
        values = extreme(b, data, [dim], keeps=keepdim, is_max=largest)
        return relax.Tuple([values, b.emit(places(data, dim, keepdim))])

    return make


def variance_and_mean(
    b: relax.BlockBuilder, data: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    spread = variance(b, data, dim, correction, keepdim)
    return relax.Tuple([spread, b.emit(relax.op.mean(data, _axes(data, dim), keepdim))])


def variance(
    b: relax.BlockBuilder, data: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    scale = _corrected(b, data, _axes(data, dim), 1 if correction is None else correction)
    return b.emit(relax.op.multiply(b.emit(relax.op.variance(data, _axes(data, dim), keepdim)), scale))


def _axes(data: Any, dim: Any) -> list[int]:
    """All of them where none are said."""
    return [dim] if isinstance(dim, int) else list(dim or range(len(data.ty.shape)))


def _corrected(b: relax.BlockBuilder, data: Any, axes: list[int], correction: float) -> Any:
    """What takes a mean of squares for a sum of them over ``correction`` fewer: NaN or infinite where none are left."""
    op, dtype, extents = relax.op, str(data.ty.dtype), [data.ty.shape.values[axis] for axis in axes]
    if all(isinstance(extent, tirx.IntImm) for extent in extents):
        size = int(np.prod([int(extent) for extent in extents]))
        rest = size - correction
        return relax.const(size / rest if rest > 0 else float("nan" if size <= 1 else "inf"), dtype)
    shape = b.emit(op.shape_to_tensor(relax.ShapeExpr(extents)))
    count = b.emit(op.astype(b.emit(op.prod(shape)), "float32"))
    left = b.emit(op.maximum(b.emit(op.subtract(count, relax.const(correction, "float32"))), relax.const(0, "float32")))
    return b.emit(op.astype(b.emit(op.divide(count, left)), dtype))


def kth_value(b: relax.BlockBuilder, data: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    order = b.emit(relax.op.argsort(data, dim, False, "int64"))
    place = b.emit(relax.op.take(order, relax.const([k - 1], "int64"), dim))
    value = b.emit(relax.op.gather_elements(data, place, dim))
    both = [value, place] if keepdim else [b.emit(relax.op.squeeze(one, [dim])) for one in (value, place)]
    return relax.Tuple(both)
