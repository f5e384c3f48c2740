"""Ops of torch over tables: bags of rows, places in sorted rows, windows of any size, rows again and again.

In: an importer's builder, values of a node's arguments. Out: what the node gives, in Relax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype
from eqsat_layout.readers.layers.extremes import extreme
from eqsat_layout.readers.torch.numbers import of_size
from eqsat_layout.readers.torch.types import dtype_name

_SUM, _MEAN, _MAX = range(3)
"""Modes of torch's ``EmbeddingBag``."""


def embedding_bags(
    b: relax.BlockBuilder,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Rows of ``weight`` of each bag, which is what lies from its offset to the next, as sum, mean or largest."""
    if padding_idx >= 0:
        raise EqsatError("bags with rows that count for nothing (padding_idx) are not done")
    op, dtype = relax.op, str(weight.ty.dtype)
    rows = b.emit(op.take(weight, indices, 0, mode="fast"))
    if per_sample_weights is not None:
        rows = b.emit(op.multiply(rows, b.emit(op.expand_dims(per_sample_weights, -1))))
    member = _members(b, offsets, indices.ty.shape.values[0], ends=include_last_offset)
    counted = b.emit(op.astype(member, dtype))
    sizes = b.emit(op.sum(counted, [1], keepdims=True))
    if mode == _MAX:
        inside = b.emit(op.expand_dims(member, -1))
        masked = b.emit(op.where(inside, b.emit(op.expand_dims(rows, 0)), relax.const(-np.inf, dtype)))
        found = extreme(b, masked, [1], keeps=False, is_max=True)
        is_empty = b.emit(op.equal(sizes, relax.const(0, dtype)))
        made = b.emit(op.where(is_empty, relax.const(0, dtype), found))
    else:
        made = b.emit(op.matmul(counted, rows))
    if mode == _MEAN:
        made = b.emit(op.divide(made, b.emit(op.maximum(sizes, relax.const(1, dtype)))))
    return relax.Tuple([made])


def _members(b: relax.BlockBuilder, offsets: Any, count: Any, *, ends: bool) -> Any:
    """Which bag holds which of ``count`` rows: a matrix of booleans."""
    op, kind = relax.op, str(offsets.ty.dtype)
    places = b.emit(op.arange(0, relax.prim_value(count), 1, kind))
    begun = b.emit(op.less_equal(b.emit(op.expand_dims(offsets, 1)), b.emit(op.expand_dims(places, 0))))
    number = offsets.ty.shape.values[0]
    first = b.emit(op.strided_slice(begun, [0], [0], [number - 1], assume_inbound=True))
    later = b.emit(op.logical_not(b.emit(op.strided_slice(begun, [0], [1], [number], assume_inbound=True))))
    inside = b.emit(op.logical_and(first, later))
    if ends:
        return inside
    last = b.emit(op.strided_slice(begun, [0], [number - 1], [number], assume_inbound=True))
    return b.emit(op.concat([inside, last], 0))


def searchsorted(
    b: relax.BlockBuilder,
    sorted_rows: Any,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """``searchsorted``: how many elements of a row are below each value, or not above it; a NaN is above all."""
    op = relax.op
    is_right = right or side == "right"
    if sorter is not None:
        sorted_rows = b.emit(op.gather_elements(sorted_rows, b.emit(op.astype(sorter, "int64")), -1))
    if len(sorted_rows.ty.shape) == 1:
        return bucketized(b, values, sorted_rows, out_int32, is_right)
    row = b.emit(op.expand_dims(sorted_rows, -2))
    each = b.emit(op.expand_dims(values, -1))
    is_behind = b.emit((op.greater if is_right else op.greater_equal)(row, each))
    is_before = b.emit(op.logical_not(is_behind))
    return b.emit(op.sum(b.emit(op.astype(is_before, "int32" if out_int32 else "int64")), [-1]))


def bucketized(
    b: relax.BlockBuilder, values: Any, boundaries: Any, out_int32: bool = False, right: bool = False
) -> Any:
    """``bucketize``; TVM's search finds no place for NaN, and says 0."""
    op = relax.op
    made = b.emit(op.bucketize(values, boundaries, out_int32, right))
    if not str(values.ty.dtype).startswith(("float", "bfloat")):
        return made
    count = _counted(b, boundaries.ty.shape.values[0], str(made.ty.dtype))
    return b.emit(op.where(b.emit(op.isnan(values)), count, made))


def _counted(b: relax.BlockBuilder, extent: Any, dtype: str) -> Any:
    """An extent as a number."""
    if isinstance(extent, tirx.IntImm):
        return relax.const(int(extent), dtype)
    return as_dtype(b, of_size(b, extent), dtype)


def adaptive_max_pool(b: relax.BlockBuilder, data: Any, size: Sequence[int]) -> Any:
    """Values and places of windows that divide an image, along two axes or three, as evenly as they can."""
    op, count = relax.op, len(size)
    outer, extents = list(data.ty.shape.values)[:-count], list(data.ty.shape.values)[-count:]
    if not all(isinstance(one, tirx.IntImm) for one in extents):
        raise EqsatError("adaptive max pools of images of unknown size are not done")
    tables = [_windows(int(extent), out) for extent, out in zip(extents, size, strict=True)]
    rank, counts, lengths = len(outer), *zip(*(table.shape for table in tables), strict=True)
    taken, flat = data, np.zeros([1] * 2 * count, "int64")
    for axis, table in enumerate(tables):
        taken = b.emit(op.take(taken, relax.const(table.ravel(), "int64"), rank + axis))
        spread = [1] * (2 * count)
        spread[axis], spread[count + axis] = table.shape
        flat = flat * int(extents[axis]) + table.reshape(spread)
    apart = b.emit(op.reshape(taken, [*outer, *(n for table in tables for n in table.shape)]))
    order = [*range(rank), *range(rank, rank + 2 * count, 2), *range(rank + 1, rank + 2 * count, 2)]
    windows = b.emit(op.reshape(b.emit(op.permute_dims(apart, order)), [*outer, *counts, math.prod(lengths)]))
    values = extreme(b, apart, list(range(rank + 1, rank + 2 * count, 2)), keeps=False, is_max=True)
    numbers = relax.const(flat.reshape(*counts, -1), "int64")
    wide = b.emit(op.broadcast_to(numbers, [*outer, *counts, math.prod(lengths)]))
    largest = b.emit(op.argmax(windows, -1, keepdims=True))
    places = b.emit(op.squeeze(b.emit(op.gather_elements(wide, largest, rank + count)), [-1]))
    return relax.Tuple([values, places])


def _windows(extent: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of each window; shorter ones have their last one again."""
    starts = np.arange(count) * extent // count
    ends = -(-(np.arange(1, count + 1) * extent) // count)
    places = starts[:, None] + np.arange((ends - starts).max())[None]
    return np.minimum(places, ends[:, None] - 1).astype("int64")


def product_of_three(
    b: relax.BlockBuilder,
    one: Any,
    other: Any,
    third: Any,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """``_trilinear``: operands get axes, are multiplied and summed (``nn.Bilinear``)."""
    op = relax.op
    product = None
    for value, axes in ((one, expand1), (other, expand2), (third, expand3)):
        wide = value
        for axis in sorted(axes):
            wide = b.emit(op.expand_dims(wide, axis))
        product = wide if product is None else b.emit(op.multiply(product, wide))
    return b.emit(op.sum(product, list(sumdim)))


def product_along(b: relax.BlockBuilder, data: Any, dim: int, keepdim: bool = False, dtype: Any = None) -> Any:
    """Along one axis; of whole numbers as int64."""
    own = str(data.ty.dtype)
    name = dtype_name(dtype) if dtype is not None else own
    if dtype is None and not own.startswith(("float", "bfloat")):
        name = "int64"
    return b.emit(relax.op.prod(as_dtype(b, data, name), [dim], keepdim))


def repeated_by_sizes(b: relax.BlockBuilder, data: Any, counts: Sequence[Any]) -> Any:
    """``x.repeat``, also as often as sizes say, which TVM's ``tile`` does not take."""
    op = relax.op
    if all(isinstance(one, int) for one in counts):
        return b.emit(op.tile(data, list(counts)))
    extents = list(data.ty.shape.values)
    extents = [tirx.IntImm("int64", 1)] * (len(counts) - len(extents)) + extents
    apart, spread = (
        [one for pair in zip(own, extents, strict=True) for one in pair] for own in ([1] * len(counts), counts)
    )
    wide = b.emit(op.broadcast_to(b.emit(op.reshape(data, apart)), spread))
    return b.emit(op.reshape(wide, [count * extent for count, extent in zip(counts, extents, strict=True)]))


MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "_embedding_bag_forward_only.default": embedding_bags,
    "_embedding_bag.default": embedding_bags,
    "searchsorted.Tensor": searchsorted,
    "bucketize.Tensor": bucketized,
    "adaptive_max_pool2d.default": adaptive_max_pool,
    "adaptive_max_pool3d.default": adaptive_max_pool,
    "_trilinear.default": product_of_three,
    "prod.dim_int": product_along,
    "repeat.default": repeated_by_sizes,
}
"""By the names of torch's ops."""
