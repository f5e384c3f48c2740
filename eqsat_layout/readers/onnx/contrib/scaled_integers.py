"""Ops on quantised tensors: integers with a scale and a zero point.

In: a node's inputs and attributes. Out: its results, in Relax. Others of the kind are ONNX's own:
:mod:`eqsat_layout.readers.onnx.quantized`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import relax

from eqsat_layout.readers.onnx import recurrent
from eqsat_layout.readers.onnx.contrib.operands import EmittedOps, Maker, last_axes_exchanged, operand_shape
from eqsat_layout.readers.onnx.quantized import rounded_to_range


def dequantised(op: EmittedOps, x: Any, scale: Any, zero: Any) -> Any:
    """``(x - zero) * scale``, in float32."""
    wide = op.floats(x)
    if zero is not None:
        wide = op.subtract(wide, op.floats(zero))
    return op.multiply(wide, scale)


def _quantised(op: EmittedOps, value: Any, scale: Any, zero: Any, like: Any = None) -> Any:
    """``value / scale + zero``, rounded and saturated to the type of ``zero``, of ``like`` where there is no zero."""
    return rounded_to_range(op.builder, op.divide(value, scale), zero, str((like if zero is None else zero).ty.dtype))


def _on_dequantised(function: Maker, count: int) -> Callable[..., Any]:
    """``function`` on dequantised operands, quantised again. A node has ``count`` triples, then a scale and a zero."""

    def make(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        given = [dequantised(op, *inputs[3 * i : 3 * i + 3]) for i in range(count)]
        made = function(op, given, attributes)
        return _quantised(op, made, inputs[3 * count], inputs[3 * count + 1], inputs[0])

    return make


def _quantised_concat(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QLinearConcat``: the scale and zero of the result come first."""
    rest = [one for one in inputs[2:] if one is not None]
    given = [dequantised(op, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    return _quantised(op, op.concat(given, int(attributes["axis"])), inputs[0], inputs[1])


def _global_mean(op: EmittedOps, given: list[Any], attributes: dict[str, Any]) -> Any:
    axes = len(operand_shape(given[0])) - 2
    if attributes.get("channels_last"):
        return op.mean(given[0], list(range(1, 1 + axes)), keepdims=True)
    return op.mean(given[0], list(range(2, 2 + axes)), keepdims=True)


def _quantised_gemm(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QGemm``: sums of integers in float32, exact below 2^24."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = inputs[:9]
    sides = []
    for x, zero, turns in ((a, a_zero, "transA"), (b, b_zero, "transB")):
        wide = last_axes_exchanged(op, op.floats(x)) if attributes.get(turns) else op.floats(x)
        sides.append(op.subtract(wide, op.floats(zero)))
    sums = op.matmul(*sides)
    if c is not None:
        sums = op.add(sums, op.floats(c))
    factor = op.scaled(op.multiply(a_scale, b_scale), float(attributes.get("alpha", 1.0)))
    if y_scale is None:
        return op.multiply(sums, factor)
    return _quantised(op, op.multiply(sums, op.divide(factor, y_scale)), relax.const(1.0, "float32"), y_zero)


def _integer_product(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MatMulIntegerToFloat``."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs[:7]
    sides = [
        op.floats(x) if zero is None else op.subtract(op.floats(x), op.floats(zero))
        for x, zero in ((a, a_zero), (b, b_zero))
    ]
    made = op.multiply(op.matmul(*sides), op.multiply(a_scale, b_scale))
    return made if bias is None else op.add(made, bias)


def _dynamically_quantised_product(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``DynamicQuantizeMatMul``: the first operand is quantised to uint8 between its extremes."""
    a, b, b_scale, b_zero, bias = inputs[:5]
    no, most = op.number(0, a), op.number(255, a)
    least, largest = op.minimum(op.min(a), no), op.maximum(op.max(a), no)
    span = op.divide(op.subtract(largest, least), most)
    scale = op.where(op.equal(span, no), op.number(1, a), span)
    zero = op.round(op.clip(op.divide(op.negative(least), scale), 0, 255))
    steps = op.astype(op.clip(op.add(op.round(op.divide(a, scale)), zero), 0, 255), "uint8")
    zero = op.astype(zero, "uint8")
    return _integer_product(op, [steps, b, scale, b_scale, zero, b_zero, bias], attributes)


def _dynamically_quantised_lstm(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``DynamicQuantizeLSTM`` on dequantised weights; data and states are not quantised."""
    weights = []
    for matrix, scale, zero in ((inputs[1], *inputs[8:10]), (inputs[2], *inputs[10:12])):
        spread = [
            op.reshape(one, [operand_shape(one)[0], 1, -1]) if operand_shape(one) else one for one in (scale, zero)
        ]
        weights.append(last_axes_exchanged(op, dequantised(op, matrix, *spread)))
    return recurrent.converted(op.builder, "LSTM", [inputs[0], *weights, *inputs[3:8]], attributes)


MAKERS: Final[dict[str, Maker]] = {
    "QLinearAdd": _on_dequantised(lambda op, given, _: op.add(*given), 2),
    "QLinearMul": _on_dequantised(lambda op, given, _: op.multiply(*given), 2),
    "QLinearSigmoid": _on_dequantised(lambda op, given, _: op.sigmoid(*given), 1),
    "QLinearLeakyRelu": _on_dequantised(lambda op, given, a: op.leakyrelu(given[0], float(a.get("alpha", 0.01))), 1),
    "QLinearSoftmax": _on_dequantised(lambda op, given, a: op.softmax(given[0], int(a.get("axis", -1))), 1),
    "QLinearGlobalAveragePool": _on_dequantised(_global_mean, 1),
    "QLinearConcat": _quantised_concat,
    "QGemm": _quantised_gemm,
    "MatMulIntegerToFloat": _integer_product,
    "DynamicQuantizeMatMul": _dynamically_quantised_product,
    "DynamicQuantizeLSTM": _dynamically_quantised_lstm,
}
"""By the names of the ops."""
