"""Convolutions and products of ONNX on whole numbers with scales, which TVM's frontend does not take.

In: a node's inputs and attributes, TVM's converters of the ops on plain numbers. Out: its result, in Relax. Whole
numbers of 8 bits are exact in float32, and so are their sums up to 2^24: convolutions are as fast as those of floats.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from tvm import relax, tirx

from eqsat_layout.errors import EqsatError

Convert = Callable[[str, list[Any], dict[str, Any]], Any]

KINDS: Final = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger"})
"""Their names."""

_RANGES: Final = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any], convert: Convert) -> Any:
    """The result of a node. ``convert``: what TVM makes of an op, inputs and attributes."""
    given = [*inputs, *[None] * 9][:9]
    ops = _Ops(builder)
    if kind == "ConvInteger":
        data = ops.less(given[0], given[2], "int32", -1)
        return convert("Conv", [data, ops.less(given[1], given[3], "int32", 0), None], attributes)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = given
    is_conv = kind == "QLinearConv"
    data = ops.less(x, x_zero, "float32", -1 if is_conv else -2)
    weights = ops.less(w, w_zero, "float32", 0 if is_conv else -1)
    scales = [ops.floats(one) for one in (x_scale, w_scale, y_scale)]
    if is_conv:
        sums = builder.emit(convert("Conv", [data, weights, None], attributes))
        if bias is not None:
            sums = builder.emit(relax.op.add(sums, ops.along(ops.floats(bias), 1, sums)))
        axes = (1, 1, 1)
    else:
        sums = builder.emit(relax.op.matmul(data, weights))
        axes = (-2, -1, -1)
    x_by, w_by, y_by = (ops.along(one, axis, sums) for one, axis in zip(scales, axes, strict=True))
    factor = builder.emit(relax.op.divide(builder.emit(relax.op.multiply(x_by, w_by)), y_by))
    scaled = builder.emit(relax.op.multiply(sums, factor))
    return rounded_to_range(builder, scaled, ops.along(y_zero, axes[2], sums), str(y_zero.ty.dtype))


def quantised_in_blocks(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``DequantizeLinear`` or ``QuantizeLinear`` with a scale, and a zero, for each so many elements along an axis."""
    x, scale, zero = [*inputs, None][:3]
    ops, axis, block = _Ops(builder), int(attributes.get("axis", 1)), int(attributes["block_size"])
    extent = x.ty.shape.values[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError(f"{kind} by blocks of an axis of unknown size is not done")

    def spread(value: Any) -> Any:
        own = builder.emit(relax.op.repeat(value, block, axis))
        return builder.emit(relax.op.strided_slice(own, [axis], [0], [int(extent)]))

    own = ops.floats(x)
    if kind == "QuantizeLinear":
        helper = importlib.import_module("onnx.helper")
        asked = attributes.get("output_dtype", 0)
        usual = str(helper.tensor_dtype_to_np_dtype(asked)) if asked else "uint8"
        dtype = usual if zero is None else str(zero.ty.dtype)
        scaled = builder.emit(relax.op.divide(own, spread(ops.floats(scale))))
        return rounded_to_range(builder, scaled, None if zero is None else spread(zero), dtype)
    if zero is not None:
        own = builder.emit(relax.op.subtract(own, spread(ops.floats(zero))))
    made = builder.emit(relax.op.multiply(own, spread(ops.floats(scale))))
    return builder.emit(relax.op.astype(made, str(scale.ty.dtype)))


def quantised_dynamically(builder: relax.BlockBuilder, x: Any) -> Any:
    """``DynamicQuantizeLinear``: bytes between the extremes and 0, the scale, the zero point. The scale of zeros alone
    is 1, as in ONNX Runtime; it would be 0 else, and every byte that of NaN."""
    emit, op, dtype = builder.emit, relax.op, str(x.ty.dtype)
    least, most = (relax.const(end, dtype) for end in _RANGES["uint8"])
    low, high = emit(op.minimum(least, emit(op.min(x)))), emit(op.maximum(least, emit(op.max(x))))
    step = emit(op.divide(emit(op.subtract(high, low)), most))
    scale = emit(op.where(emit(op.equal(step, least)), relax.const(1, dtype), step))
    start = emit(op.subtract(least, emit(op.divide(low, scale))))
    zero = emit(op.astype(emit(op.round(emit(op.clip(start, *_RANGES["uint8"])))), "uint8"))
    return relax.Tuple([emit(op.quantize(x, scale, zero, axis=0, out_dtype="uint8")), scale, zero])


class _Ops:
    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def floats(self, value: Any) -> Any:
        return self._builder.emit(relax.op.astype(value, "float32"))

    def less(self, value: Any, zero: Any, dtype: str, axis: int) -> Any:
        """``value - zero``, as numbers of ``dtype``; ``zero``: one, one for each place of ``axis``, or none."""
        own = self._builder.emit(relax.op.astype(value, dtype))
        if zero is None:
            return own
        spread = self.along(zero, axis, own)
        return self._builder.emit(relax.op.subtract(own, self._builder.emit(relax.op.astype(spread, dtype))))

    def along(self, value: Any, axis: int, other: Any) -> Any:
        """A vector as a tensor that is along one axis of ``other``; what has as many axes or one element is so."""
        rank, own = len(other.ty.shape), len(value.ty.shape)
        if own == 1 and not _is_one(value):
            shape = [1] * rank
            shape[axis] = value.ty.shape.values[0]
            return self._builder.emit(relax.op.reshape(value, shape))
        if own == 1:
            return self._builder.emit(relax.op.reshape(value, []))
        if own not in (0, rank):
            raise EqsatError(f"scales or zeros with {own} axes for {rank} are not done")
        return value


def rounded_to_range(builder: relax.BlockBuilder, value: Any, zero: Any, dtype: str) -> Any:
    """To the nearest, even where two are, plus ``zero`` if there is one, in the range of ``dtype``."""
    if dtype not in _RANGES:
        raise EqsatError(f"a result of {dtype} is not done")
    moved = builder.emit(relax.op.round(value))
    if zero is not None:
        moved = builder.emit(relax.op.add(moved, builder.emit(relax.op.astype(zero, "float32"))))
    return builder.emit(relax.op.astype(builder.emit(relax.op.clip(moved, *_RANGES[dtype])), dtype))


def _is_one(value: Any) -> bool:
    extent = value.ty.shape.values[0]
    return isinstance(extent, tirx.IntImm) and int(extent) == 1
