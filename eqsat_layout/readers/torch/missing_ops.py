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
from eqsat_layout.readers.layers.dtypes import as_dtype, number_of_type
from eqsat_layout.readers.layers.padding import CONSTANT, padded
from eqsat_layout.readers.layers.resampling import Filter, in_steps, resampled
from eqsat_layout.readers.layers.window_maxima import Windows, window_count, window_maxima
from eqsat_layout.readers.torch.numbers import of_size
from eqsat_layout.readers.torch.scatters import index_reduce, masked_scatter, scatter, scatter_as, scatter_reduce
from eqsat_layout.readers.torch.statistics import extremes, kth_value, variance, variance_and_mean, with_place
from eqsat_layout.readers.torch.types import Maker, dtype_name

SHIFTS: Final = {
    f"{name}.{operands}": f"{way}_shift"
    for way in ("left", "right")
    for name in (f"bitwise_{way}_shift", f"__{way[0]}shift__")
    for operands in ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
}
"""Relax's op by torch's names."""


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


def _scalar(b: relax.BlockBuilder, value: Any, dtype: Any = None, **_: Any) -> Any:
    """A number as a tensor without axes, which those are that were worked out of sizes."""
    name = "float32" if dtype is None else dtype_name(dtype)
    if isinstance(getattr(value, "ty", None), relax.TensorType):
        return as_dtype(b, value, name)
    if isinstance(value, ir.Expr):
        return b.emit(relax.op.astype(of_size(b, value), name))
    return number_of_type(value, name)


def _filled_like(b: relax.BlockBuilder, x: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    """``full_like``; TVM's converter takes no whole number that the type does not hold."""
    name = str(x.ty.dtype) if dtype is None else dtype_name(dtype)
    return b.emit(relax.op.full_like(x, _scalar(b, value, name), name))


def _of_floats(op: Callable[..., Any]) -> Maker:
    """Arithmetic on sizes that gives no whole number."""
    return lambda b, one, other: b.emit(op(_size_as_float(b, one), _size_as_float(b, other)))


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
    "full_like.default": _filled_like,
    "truediv": _of_floats(relax.op.divide),
    "pow": _of_floats(relax.op.power),
    "scatter.src": scatter("update"),
    "scatter.value": scatter("update"),
    "scatter.reduce": scatter_as,
    "scatter.value_reduce": scatter_as,
    "scatter_add.default": scatter("add"),
    "scatter_reduce.two": scatter_reduce,
    "index_reduce.default": index_reduce,
    "_cdist_forward.default": _distances,
    "unfold.default": _windows,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
    "amax.default": extremes(largest=True),
    "amin.default": extremes(largest=False),
    "max.default": extremes(largest=True),
    "min.default": extremes(largest=False),
    "max.dim": with_place(largest=True),
    "min.dim": with_place(largest=False),
    "var.correction": variance,
    "var_mean.correction": variance_and_mean,
    "kthvalue.default": kth_value,
    "copysign.Tensor": _with_sign,
    "copysign.Scalar": _with_sign,
    "signbit.default": _is_minus,
    "masked_scatter.default": masked_scatter,
    "_upsample_bilinear2d_aa.default": _smoothed("linear"),
    "_upsample_bicubic2d_aa.default": _smoothed("cubic"),
    "fmax.default": _number_of(relax.op.maximum),
    "fmin.default": _number_of(relax.op.minimum),
    **{name: _of_two(getattr(relax.op, op)) for name, op in SHIFTS.items()},
}
"""By the names of torch's ops."""
