"""Ops of torch that TVM's frontend does not take, or for something else, and that torch writes in no other ops.

In: an importer's builder, values of a node's arguments. Out: what the node gives, in Relax.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype, number
from eqsat_layout.readers.layers.extremes import extreme
from eqsat_layout.readers.layers.padding import CONSTANT, padded
from eqsat_layout.readers.layers.resampling import Filter, in_steps, resampled
from eqsat_layout.readers.layers.scattering import scattered
from eqsat_layout.readers.layers.window_maxima import Windows, window_count, window_maxima
from eqsat_layout.readers.torch.types import dtype_name

Maker = Callable[..., Any]

SHIFTS: Final = {
    f"{name}.{operands}": f"{way}_shift"
    for way in ("left", "right")
    for name in (f"bitwise_{way}_shift", f"__{way[0]}shift__")
    for operands in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
}
"""Relax's op by torch's names."""


def _scatter(reduction: str) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any) -> Any:
        if isinstance(source, bool | int | float):
            source = relax.op.full(index.ty.shape, relax.const(source, str(data.ty.dtype)), str(data.ty.dtype))
            return scattered(b, data, index, b.emit(source), dim, reduction)
        return scattered(b, data, index, _cut(b, source, index), dim, reduction)

    return make


def _cut(b: relax.BlockBuilder, source: Any, index: Any) -> Any:
    """torch takes as many elements as there are indices."""
    own, asked = list(source.ty.shape.values), list(index.ty.shape.values)
    if len(own) != len(asked) or all(str(a) == str(c) for a, c in zip(own, asked, strict=True)):
        return source
    axes = list(range(len(own)))
    return b.emit(relax.op.strided_slice(source, axes, [0] * len(own), asked, assume_inbound=True))


def _pad(b: relax.BlockBuilder, data: Any, pads: Any, value: Any = 0) -> Any:
    """``pads``: before and after, of the last axis first; below 0 is cut off."""
    rank, amounts = len(data.ty.shape), list(pads)
    before, after = [0] * rank, [0] * rank
    for axis, (one, other) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        before[rank - 1 - axis], after[rank - 1 - axis] = one, other
    if all(isinstance(one, int) and one >= 0 for one in amounts):
        each = [one for pair in zip(before, after, strict=True) for one in pair]
        return b.emit(relax.op.nn.pad(data, each, CONSTANT, value or 0))
    return padded(b, data, before, after, CONSTANT, relax.const(value or 0, str(data.ty.dtype)))


def _size_as_float(b: relax.BlockBuilder, size: Any) -> Any:
    """A tensor of one number: Python's float, which torch takes for one of any type of floats."""
    if not isinstance(size, ir.Expr):
        return relax.const(float(size), "float32")
    if not isinstance(size.ty, relax.TensorType):
        size = of_size(b, size)
    return size if str(size.ty.dtype).startswith("float") else b.emit(relax.op.astype(size, "float32"))


def of_size(b: relax.BlockBuilder, size: Any) -> Any:
    """As a tensor of one number."""
    return b.emit(relax.op.reshape(b.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))), ()))


def _scalar(b: relax.BlockBuilder, value: Any, dtype: Any = None, **_: Any) -> Any:
    """A number as a tensor without axes, which those are that were worked out of sizes."""
    name = "float32" if dtype is None else dtype_name(dtype)
    if isinstance(getattr(value, "ty", None), relax.TensorType):
        return as_dtype(b, value, name)
    return b.emit(relax.op.astype(of_size(b, value), name)) if isinstance(value, ir.Expr) else number(value, name)


def _of_floats(op: Callable[..., Any]) -> Maker:
    """Arithmetic on sizes that gives no whole number."""
    return lambda b, one, other: b.emit(op(_size_as_float(b, one), _size_as_float(b, other)))


_REDUCTIONS: Final = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(
    b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """``include_self=False``: an element that gets others is none of them. Means of integers are rounded down."""
    dtype, op = str(data.ty.dtype), relax.op
    if reduce not in _REDUCTIONS:
        raise EqsatError(f"scatter_reduce with reduce={reduce} of {dtype} is not done")
    if reduce != "mean" and include_self:
        return _scatter(_REDUCTIONS[reduce])(b, data, dim, index, source)
    nothing = b.emit(op.zeros(data.ty.shape, "int32"))  # bytes count no more than 127
    ones = b.emit(op.ones(_cut(b, source, index).ty.shape, "int32"))
    counts = _scatter("add")(b, nothing, dim, index, ones)
    if not include_self:
        gets = b.emit(op.greater(counts, relax.const(0, "int32")))
        data = b.emit(op.where(gets, _neutral(reduce, dtype), data))
    made = _scatter(_REDUCTIONS[reduce])(b, data, dim, index, source)
    if reduce != "mean":
        return made
    own = as_dtype(b, b.emit(op.add(counts, relax.const(1, "int32"))) if include_self else counts, dtype)
    none, one = (relax.const(number, dtype) for number in (0, 1))
    own = b.emit(op.where(b.emit(op.equal(own, none)), one, own))  # 256 bytes are none, in torch too
    divide = op.divide if dtype.startswith(("float", "bfloat")) else op.floor_divide
    return b.emit(divide(made, own))


def _index_reduce(
    b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """Whole slices by one index each."""
    shape, axis = list(source.ty.shape.values), dim % max(len(source.ty.shape), 1)
    flat = b.emit(relax.op.reshape(index, [size if at == axis else 1 for at, size in enumerate(shape)]))
    spread = b.emit(relax.op.broadcast_to(flat, shape))
    return _scatter_reduce(b, data, dim, spread, source, reduce, include_self)


def _neutral(reduce: str, dtype: str) -> Any:
    if reduce in ("amax", "amin"):
        end = (tirx.min_value if reduce == "amax" else tirx.max_value)(dtype)
        is_float = dtype.startswith(("float", "bfloat"))
        return relax.const(float("-inf" if reduce == "amax" else "inf") if is_float else int(end), dtype)
    return relax.const(1 if reduce == "prod" else 0, dtype)


def _distances(b: relax.BlockBuilder, one: Any, other: Any, p: float, mode: Any = None) -> Any:
    """The distances of all rows of one tensor from all rows of another."""
    apart = b.emit(relax.op.subtract(b.emit(relax.op.expand_dims(one, -2)), b.emit(relax.op.expand_dims(other, -3))))
    size = b.emit(relax.op.abs(apart))
    dtype = str(one.ty.dtype)
    if p == 2:
        return b.emit(relax.op.sqrt(b.emit(relax.op.sum(b.emit(relax.op.multiply(apart, apart)), -1))))
    if p == 1:
        return b.emit(relax.op.sum(size, -1))
    if p == float("inf"):
        return b.emit(relax.op.max(size, -1))
    if p == 0:
        differ = b.emit(relax.op.not_equal(size, relax.const(0, dtype)))
        return b.emit(relax.op.sum(b.emit(relax.op.astype(differ, dtype)), -1))
    powers = b.emit(relax.op.sum(b.emit(relax.op.power(size, relax.const(p, dtype))), -1))
    return b.emit(relax.op.power(powers, relax.const(1 / p, dtype)))


def _windows(b: relax.BlockBuilder, data: Any, dim: int, size: int, step: int) -> Any:
    """``x.unfold``: windows along one axis, their elements along a new last one."""
    rank = len(data.ty.shape)
    axis = dim % rank if rank else 0
    extent = data.ty.shape.values[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError("windows along an axis of unknown size are not done")
    starts = np.arange((int(extent) - size) // step + 1) * step
    places = (starts[:, None] + np.arange(size)[None]).astype("int64")
    made = b.emit(relax.op.take(data, relax.const(places), axis))
    order = [at for at in range(rank + 1) if at != axis + 1]
    return b.emit(relax.op.permute_dims(made, [*order, axis + 1]))


def _max_pool(
    b: relax.BlockBuilder,
    data: Any,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    """Values and places."""
    rank = len(data.ty.shape) - 2
    sizes, paddings, dilations = (_each(one, rank) for one in (size, padding, dilation))
    strides = _each(stride, rank) if stride else sizes
    extents = [int(e) if isinstance(e, tirx.IntImm) else e for e in list(data.ty.shape.values)[2:]]
    counts = [
        window_count(extents[i], sizes[i], strides[i], 2 * paddings[i], dilations[i], is_ceil=ceil, before=paddings[i])
        for i in range(rank)
    ]
    return relax.Tuple(window_maxima(b, data, Windows(sizes, strides, paddings, dilations, counts)))


def _each(value: Any, rank: int) -> list[int]:
    given = [value] if isinstance(value, int) else list(value)
    return given * rank if len(given) == 1 else given


def _extremes(largest: bool) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: Any = (), keepdim: bool = False) -> Any:
        axes = [dim] if isinstance(dim, int) else list(dim) or None
        return extreme(b, data, axes, keeps=keepdim, is_max=largest)

    return make


def _with_place(largest: bool) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: int, keepdim: bool = False) -> Any:
        places = relax.op.argmax if largest else relax.op.argmin
        values = extreme(b, data, [dim], keeps=keepdim, is_max=largest)
        return relax.Tuple([values, b.emit(places(data, dim, keepdim))])

    return make


def _variance_and_mean(
    b: relax.BlockBuilder, data: Any, dim: Any = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    variance = _variance(b, data, dim, correction, keepdim)
    return relax.Tuple([variance, b.emit(relax.op.mean(data, _axes(data, dim), keepdim))])


def _variance(
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


def _kth(b: relax.BlockBuilder, data: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    order = b.emit(relax.op.argsort(data, dim, False, "int64"))
    place = b.emit(relax.op.take(order, relax.const([k - 1], "int64"), dim))
    value = b.emit(relax.op.gather_elements(data, place, dim))
    both = [value, place] if keepdim else [b.emit(relax.op.squeeze(one, [dim])) for one in (value, place)]
    return relax.Tuple(both)


def _of(op: Callable[[Any], Any]) -> Maker:
    return lambda b, x: b.emit(op(x))


def _of_two(op: Callable[[Any, Any], Any]) -> Maker:
    return lambda b, one, other: b.emit(op(one, other))


def _is_minus(b: relax.BlockBuilder, x: Any) -> Any:
    """``signbit``: of -0 too."""
    dtype = str(x.ty.dtype)
    zero = relax.const(0, dtype)
    is_below = b.emit(relax.op.less(x, zero))
    if not dtype.startswith(("float", "bfloat")):
        return is_below
    inverse = b.emit(relax.op.less(b.emit(relax.op.divide(relax.const(1, dtype), x)), zero))
    is_zero = b.emit(relax.op.logical_and(b.emit(relax.op.equal(x, zero)), inverse))
    return b.emit(relax.op.logical_or(is_below, is_zero))


def _with_sign(b: relax.BlockBuilder, data: Any, sign: Any) -> Any:
    sign = sign if isinstance(sign, relax.Expr) else relax.const(sign, str(data.ty.dtype))
    size = b.emit(relax.op.abs(data))
    return b.emit(relax.op.where(_is_minus(b, sign), b.emit(relax.op.negative(size)), size))


def _filled(b: relax.BlockBuilder, data: Any, mask: Any, source: Any) -> Any:
    """``masked_scatter``: the elements that the mask says, in order, are those of the source."""
    shape = data.ty.shape
    mask = b.emit(relax.op.broadcast_to(mask, shape))
    flat = b.emit(relax.op.astype(b.emit(relax.op.reshape(mask, [-1])), "int64"))
    counted = b.emit(relax.op.cumsum(flat, 0))
    before = b.emit(relax.op.subtract(counted, relax.const(1, "int64")))
    place = b.emit(relax.op.maximum(before, relax.const(0, "int64")))
    if not all(isinstance(e, tirx.IntImm) for e in source.ty.shape):
        raise EqsatError("masked_scatter from a source of unknown size is not done")
    least = int(np.prod([int(e) for e in source.ty.shape])) - 1
    place = b.emit(relax.op.minimum(place, relax.const(least, "int64")))
    taken = b.emit(relax.op.take(b.emit(relax.op.reshape(source, [-1])), place, 0))
    return b.emit(relax.op.where(mask, b.emit(relax.op.reshape(taken, shape)), data))


def _smoothed(kind: str) -> Maker:
    """Resizes that take all elements into account."""

    def make(b: relax.BlockBuilder, data: Any, size: Any, corners: bool, *scales: Any) -> Any:
        if corners:
            raise EqsatError("a resize with antialias and align_corners is not done")
        rows = {}
        for at, (length, scale) in enumerate(zip(size, scales or [None] * len(size), strict=True)):
            extent = data.ty.shape.values[at + 2]
            if not isinstance(extent, tirx.IntImm) or not isinstance(length, int):
                raise EqsatError("a resize with antialias of unknown size is not done")
            step = 1 / scale if scale else int(extent) / length
            places = (np.arange(length) + 0.5) * step - 0.5
            made = Filter(kind).weights(places, int(extent), min(1.0, 1 / step))
            rows[at + 2] = in_steps(made) if str(data.ty.dtype) == "uint8" else made
        return resampled(b, data, rows)

    return make


def _number_of(op: Callable[[Any, Any], Any]) -> Maker:
    """``op`` of two operands; of NaN and a number, the number (``fmin``, ``fmax``)."""

    def make(b: relax.BlockBuilder, one: Any, other: Any) -> Any:
        both = b.emit(op(one, other))
        first = b.emit(relax.op.where(b.emit(relax.op.isnan(other)), one, both))
        return b.emit(relax.op.where(b.emit(relax.op.isnan(one)), other, first))

    return make


MAKERS: Final[dict[str, Maker]] = {
    "constant_pad_nd.default": _pad,
    "sym_float": _size_as_float,
    "sym_numel.default": lambda b, x: math.prod(x.ty.shape.values, start=tirx.IntImm("int64", 1)),
    "scalar_tensor.default": _scalar,
    "truediv": _of_floats(relax.op.divide),
    "pow": _of_floats(relax.op.power),
    "scatter.src": _scatter("update"),
    "scatter.value": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter_reduce,
    "index_reduce.default": _index_reduce,
    "_cdist_forward.default": _distances,
    "unfold.default": _windows,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
    "amax.default": _extremes(largest=True),
    "amin.default": _extremes(largest=False),
    "max.default": _extremes(largest=True),
    "min.default": _extremes(largest=False),
    "max.dim": _with_place(largest=True),
    "min.dim": _with_place(largest=False),
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
    "kthvalue.default": _kth,
    "copysign.Tensor": _with_sign,
    "copysign.Scalar": _with_sign,
    "signbit.default": _is_minus,
    "masked_scatter.default": _filled,
    "_upsample_bilinear2d_aa.default": _smoothed("linear"),
    "_upsample_bicubic2d_aa.default": _smoothed("cubic"),
    "fmax.default": _number_of(relax.op.maximum),
    "fmin.default": _number_of(relax.op.minimum),
    **{name: _of_two(getattr(relax.op, op)) for name, op in SHIFTS.items()},
}
"""By the names of torch's ops."""
