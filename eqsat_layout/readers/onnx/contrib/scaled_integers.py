"""Ops of whole numbers that stand for others by a scale and a zero.

In: a node's inputs and attributes. Out: its results, in Relax. Others of the kind are ONNX's own:
:mod:`eqsat_layout.readers.onnx.quantized`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tvm import relax

from eqsat_layout.readers.onnx import recurrent
from eqsat_layout.readers.onnx.contrib.operands import EmittedOps, Maker, shape_of, turned
from eqsat_layout.readers.onnx.quantized import rounded


def real(op: EmittedOps, x: Any, scale: Any, zero: Any) -> Any:
    """The numbers that whole ones stand for."""
    wide = op.floats(x)
    if zero is not None:
        wide = op.subtract(wide, op.floats(zero))
    return op.multiply(wide, scale)


def _whole(op: EmittedOps, value: Any, scale: Any, zero: Any, like: Any = None) -> Any:
    """Of the type of ``zero``, of ``like`` where there is none."""
    return rounded(op.builder, op.divide(value, scale), zero, str((like if zero is None else zero).ty.dtype))


def _of_reals(function: Maker, count: int) -> Callable[..., Any]:
    """An op of numbers that scales and zeros stand for: ``count`` triples, and of the result a scale and a zero."""

    def make(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
        given = [real(op, *inputs[3 * i : 3 * i + 3]) for i in range(count)]
        made = function(op, given, attributes)
        return _whole(op, made, inputs[3 * count], inputs[3 * count + 1], inputs[0])

    return make


def _joined_whole(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QLinearConcat``: the scale and zero of the result come first."""
    rest = [one for one in inputs[2:] if one is not None]
    given = [real(op, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    return _whole(op, op.concat(given, int(attributes["axis"])), inputs[0], inputs[1])


def _mean(op: EmittedOps, given: list[Any], attributes: dict[str, Any]) -> Any:
    axes = len(shape_of(given[0])) - 2
    if attributes.get("channels_last"):
        return op.mean(given[0], list(range(1, 1 + axes)), keepdims=True)
    return op.mean(given[0], list(range(2, 2 + axes)), keepdims=True)


def _whole_gemm(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``QGemm``: sums of whole numbers, exact in float32 as far as they are below 2^24."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = inputs[:9]
    sides = []
    for x, zero, turns in ((a, a_zero, "transA"), (b, b_zero, "transB")):
        wide = turned(op, op.floats(x)) if attributes.get(turns) else op.floats(x)
        sides.append(op.subtract(wide, op.floats(zero)))
    sums = op.matmul(*sides)
    if c is not None:
        sums = op.add(sums, op.floats(c))
    factor = op.scaled(op.multiply(a_scale, b_scale), float(attributes.get("alpha", 1.0)))
    if y_scale is None:
        return op.multiply(sums, factor)
    return _whole(op, op.multiply(sums, op.divide(factor, y_scale)), relax.const(1.0, "float32"), y_zero)


def _product_to_floats(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MatMulIntegerToFloat``."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs[:7]
    sides = [
        op.floats(x) if zero is None else op.subtract(op.floats(x), op.floats(zero))
        for x, zero in ((a, a_zero), (b, b_zero))
    ]
    made = op.multiply(op.matmul(*sides), op.multiply(a_scale, b_scale))
    return made if bias is None else op.add(made, bias)


def _product_of_rounded(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``DynamicQuantizeMatMul``: the first operand is rounded to 256 steps between its extremes, as the second is."""
    a, b, b_scale, b_zero, bias = inputs[:5]
    no, most = op.number(0, a), op.number(255, a)
    least, largest = op.minimum(op.min(a), no), op.maximum(op.max(a), no)
    span = op.divide(op.subtract(largest, least), most)
    scale = op.where(op.equal(span, no), op.number(1, a), span)
    zero = op.round(op.clip(op.divide(op.negative(least), scale), 0, 255))
    steps = op.astype(op.clip(op.add(op.round(op.divide(a, scale)), zero), 0, 255), "uint8")
    zero = op.astype(zero, "uint8")
    return _product_to_floats(op, [steps, b, scale, b_scale, zero, b_zero, bias], attributes)


def _layer_of_whole(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``DynamicQuantizeLSTM``: of the numbers that the weights stand for; data and states are not rounded."""
    weights = []
    for matrix, scale, zero in ((inputs[1], *inputs[8:10]), (inputs[2], *inputs[10:12])):
        spread = [op.reshape(one, [shape_of(one)[0], 1, -1]) if shape_of(one) else one for one in (scale, zero)]
        weights.append(turned(op, real(op, matrix, *spread)))
    return recurrent.converted(op.builder, "LSTM", [inputs[0], *weights, *inputs[3:8]], attributes)


MAKERS: Final[dict[str, Maker]] = {
    "QLinearAdd": _of_reals(lambda op, given, _: op.add(*given), 2),
    "QLinearMul": _of_reals(lambda op, given, _: op.multiply(*given), 2),
    "QLinearSigmoid": _of_reals(lambda op, given, _: op.sigmoid(*given), 1),
    "QLinearLeakyRelu": _of_reals(lambda op, given, a: op.leakyrelu(given[0], float(a.get("alpha", 0.01))), 1),
    "QLinearSoftmax": _of_reals(lambda op, given, a: op.softmax(given[0], int(a.get("axis", -1))), 1),
    "QLinearGlobalAveragePool": _of_reals(_mean, 1),
    "QLinearConcat": _joined_whole,
    "QGemm": _whole_gemm,
    "MatMulIntegerToFloat": _product_to_floats,
    "DynamicQuantizeMatMul": _product_of_rounded,
    "DynamicQuantizeLSTM": _layer_of_whole,
}
"""By the names of the ops."""
