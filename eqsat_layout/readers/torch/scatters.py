"""Torch's scatters, of elements, slices and masks.

In: their operands in Relax. Out: data in which the elements that indices or a mask say are others, or are reduced with
others.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.dtypes import as_dtype, number_of_type
from eqsat_layout.readers.layers.scattering import scattered
from eqsat_layout.readers.torch.types import Maker


def scatter(reduction: str) -> Maker:
    def make(b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any) -> Any:
        if isinstance(source, bool | int | float):
            dtype = str(data.ty.dtype)
            source = b.emit(relax.op.full(index.ty.shape, number_of_type(source, dtype), dtype))
            return scattered(b, data, index, source, dim, reduction)
        return scattered(b, data, index, _cut(b, source, index), dim, reduction)

    return make


def _cut(b: relax.BlockBuilder, source: Any, index: Any) -> Any:
    """torch takes as many elements as there are indices."""
    own, asked = list(source.ty.shape.values), list(index.ty.shape.values)
    if len(own) != len(asked) or all(str(a) == str(c) for a, c in zip(own, asked, strict=True)):
        return source
    axes = list(range(len(own)))
    return b.emit(relax.op.strided_slice(source, axes, [0] * len(own), asked, assume_inbound=True))


_REDUCTIONS: Final = {
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
    "add": "add",
    "multiply": "mul",
}


def scatter_as(b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any, reduce: str) -> Any:
    """``scatter`` with its ``reduce``."""
    return scatter(_REDUCTIONS[reduce])(b, data, dim, index, source)


def scatter_reduce(
    b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """``include_self=False``: an element that gets others is none of them. Means of integers are rounded down."""
    dtype, op = str(data.ty.dtype), relax.op
    if reduce not in _REDUCTIONS:
        raise EqsatError(f"scatter_reduce with reduce={reduce} of {dtype} is not done")
    if reduce != "mean" and include_self:
        return scatter(_REDUCTIONS[reduce])(b, data, dim, index, source)
    nothing = b.emit(op.zeros(data.ty.shape, "int32"))  # bytes count no more than 127
    ones = b.emit(op.ones(_cut(b, source, index).ty.shape, "int32"))
    counts = scatter("add")(b, nothing, dim, index, ones)
    if not include_self:
        gets = b.emit(op.greater(counts, relax.const(0, "int32")))
        data = b.emit(op.where(gets, _neutral(reduce, dtype), data))
    made = scatter(_REDUCTIONS[reduce])(b, data, dim, index, source)
    if reduce != "mean":
        return made
    own = as_dtype(b, b.emit(op.add(counts, relax.const(1, "int32"))) if include_self else counts, dtype)
    none, one = (relax.const(number, dtype) for number in (0, 1))
    own = b.emit(op.where(b.emit(op.equal(own, none)), one, own))  # 256 bytes are none, in torch too
    divide = op.divide if dtype.startswith(("float", "bfloat")) else op.floor_divide
    return b.emit(divide(made, own))


def index_reduce(
    b: relax.BlockBuilder, data: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """Whole slices by one index each."""
    shape, axis = list(source.ty.shape.values), dim % max(len(source.ty.shape), 1)
    flat = b.emit(relax.op.reshape(index, [size if at == axis else 1 for at, size in enumerate(shape)]))
    spread = b.emit(relax.op.broadcast_to(flat, shape))
    return scatter_reduce(b, data, dim, spread, source, reduce, include_self)


def _neutral(reduce: str, dtype: str) -> Any:
    if reduce in ("amax", "amin"):
        end = (tirx.min_value if reduce == "amax" else tirx.max_value)(dtype)
        is_float = dtype.startswith(("float", "bfloat"))
        return relax.const(float("-inf" if reduce == "amax" else "inf") if is_float else int(end), dtype)
    return relax.const(1 if reduce == "prod" else 0, dtype)


def masked_scatter(b: relax.BlockBuilder, data: Any, mask: Any, source: Any) -> Any:
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
