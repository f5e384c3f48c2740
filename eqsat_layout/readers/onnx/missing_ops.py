"""Ops of ONNX that TVM's frontend does not take and that ONNX does not write in others either.

In: a node's inputs and attributes. Out: its result, in Relax; :class:`EqsatError` for what is not done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm import ir, relax, te, tirx, topi

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.guards.tensor_sizes import MOST_PARTS
from eqsat_layout.readers.layers.deformed import deformed
from eqsat_layout.readers.layers.determinants import determinant
from eqsat_layout.readers.layers.exponential_units import exponential_unit
from eqsat_layout.readers.layers.fourier import fourier_transform, short_time_fourier_transform
from eqsat_layout.readers.layers.leaky_units import leaky_unit
from eqsat_layout.readers.layers.scattering import scattered
from eqsat_layout.readers.onnx.element_moves import cache_updated, image_of_windows
from eqsat_layout.readers.onnx.one_hots import hardmax, one_hot
from eqsat_layout.readers.onnx.pools import pooled_norms, pooled_with_places
from eqsat_layout.readers.onnx.quantized import quantised_dynamically
from eqsat_layout.readers.onnx.reductions import extreme_of_axes, log_sum_exp


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any], opset: int) -> Any:
    """The result of a node."""
    return _MAKERS[kind](builder, [*inputs, *[None] * 4], _defaults(kind, opset) | attributes | {"opset": opset})


def _defaults(kind: str, opset: int) -> dict[str, Any]:
    """What ONNX says of attributes that a node leaves out."""
    onnx = importlib.import_module("onnx")
    attributes = onnx.defs.get_schema(kind, opset).attributes if onnx.defs.has(kind, opset) else {}
    values = {name: one.default_value for name, one in attributes.items() if one.default_value.name}
    return {name: onnx.helper.get_attribute_value(value) for name, value in values.items()}


def takes(kind: str, results: int) -> bool:
    """Whether nodes of this op, with so many results, are made here."""
    return kind in _MAKERS and (kind not in ("MaxPool", "Dropout") or results > 1)


def _products(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``CumProd``."""
    data, axis = inputs[:2]
    if not isinstance(axis, ir.GenericConst):
        raise EqsatError("CumProd along an axis that is known at run time only is not done")
    rank = len(data.ty.shape)
    along = int(axis.value.numpy().reshape(-1)[0]) % rank
    turned = bool(attributes.get("reverse"))
    if turned:
        data = builder.emit(relax.op.flip(data, along))
    own = bool(attributes.get("exclusive"))
    made = builder.emit(relax.op.cumprod(data, along, exclusive=own))
    return builder.emit(relax.op.flip(made, along)) if turned else made


def _same_bits(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``BitCast``."""
    helper = importlib.import_module("onnx.helper")
    data, dtype = inputs[0], str(helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    if str(data.ty.dtype) == "bool":  # LLVM has one bit of it
        data = builder.emit(relax.op.astype(data, "uint8"))
    if dtype == "bool":
        byte = {"to": helper.np_dtype_to_tensor_dtype(np.dtype("uint8"))}
        bits = data if str(data.ty.dtype) == "uint8" else _same_bits(builder, [data], byte)
        return builder.emit(relax.op.not_equal(bits, relax.const(0, "uint8")))
    return builder.emit_te(
        lambda x: te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x(*at)), "bits"),
        data,
        primfunc_name_hint="same_bits",
    )


def _turned(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ReverseSequence``: of each sequence of a batch as many steps as it has."""
    time, batch = int(attributes.get("time_axis", 0)), int(attributes.get("batch_axis", 1))

    def turned(x: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            length, step = tirx.Cast("int64", lengths(at[batch])), at[time]
            place = tirx.Select(step < length, length - 1 - step, step)
            return x(*at[:time], place, *at[time + 1 :])

        return te.compute(x.shape, element, "turned")

    return builder.emit_te(turned, *inputs[:2], primfunc_name_hint="reverse_sequence")


def _infinite(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``IsInf``, of one sign or both."""
    data = inputs[0]
    found, zero = builder.emit(relax.op.isinf(data)), relax.const(0, str(data.ty.dtype))
    for sign, is_other in (("negative", relax.op.greater), ("positive", relax.op.less)):
        if not attributes.get(f"detect_{sign}", 1):
            found = builder.emit(relax.op.logical_and(found, builder.emit(is_other(data, zero))))
    return found


def _scattered(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ScatterElements``."""
    data, indices, updates = inputs[:3]
    reduction = attributes.get("reduction", b"none").decode().replace("none", "update")
    return scattered(builder, data, indices, updates, int(attributes.get("axis", 0)), reduction)


def _of_length_one(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``LpNormalization``; where the norm is zero, zeros."""
    data, axis, p = inputs[0], int(attributes.get("axis", -1)), int(attributes.get("p", 2))
    emit, zero = builder.emit, relax.const(0, str(data.ty.dtype))
    size = emit(relax.op.abs(data)) if p == 1 else emit(relax.op.multiply(data, data))
    norm = emit(relax.op.sum(size, axis, keepdims=True))
    norm = norm if p == 1 else emit(relax.op.sqrt(norm))
    return emit(relax.op.where(emit(relax.op.equal(norm, zero)), zero, emit(relax.op.divide(data, norm))))


def _all_kept(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``Dropout`` that does not train, and its mask."""
    data, trains = inputs[0], inputs[2]
    if trains is not None and not (isinstance(trains, ir.GenericConst) and not trains.value.numpy().any()):
        raise EqsatError("Dropout in training is not done")
    return relax.Tuple([data, builder.emit(relax.op.ones(data.ty.shape, "bool"))])


def _diagonal(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``EyeLike``."""
    helper = importlib.import_module("onnx.helper")
    data, kind = inputs[0], attributes.get("dtype")
    dtype = str(data.ty.dtype) if kind is None else str(helper.tensor_dtype_to_np_dtype(int(kind)))
    shape, right = data.ty.shape.values, int(attributes.get("k", 0))
    one = builder.emit_te(
        lambda: te.compute(shape, lambda i, j: tirx.Select(j - i == right, tirx.const(1, dtype), tirx.const(0, dtype))),
        primfunc_name_hint="eye_like",
    )
    return one


def _deformed(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``DeformConv``."""
    data, weight, offset, bias, mask = inputs[:5]
    return deformed(
        builder,
        data,
        weight,
        offset,
        mask,
        bias,
        strides=list(attributes.get("strides", (1, 1))),
        pads=list(attributes.get("pads", (0, 0)))[:2],
        dilations=list(attributes.get("dilations", (1, 1))),
        groups=int(attributes.get("group", 1)),
        parts=int(attributes.get("offset_group", 1)),
    )


def _parts(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``SplitToSequence``, whose last part may be smaller; TVM's are all of one size, and no tuple that others take."""
    data, sizes = inputs[:2]
    axis = int(attributes.get("axis", 0)) % len(data.ty.shape)
    extent = data.ty.shape.values[axis]
    if not isinstance(extent, tirx.IntImm) or not isinstance(sizes, ir.GenericConst | None):
        raise EqsatError("SplitToSequence into parts that are known at run time only is not done")
    given = np.array(1) if sizes is None else sizes.value.numpy()
    count = len(given) if given.ndim else -(-int(extent) // int(given))
    if count > MOST_PARTS:
        raise EqsatError(f"SplitToSequence into {count} parts, more than {MOST_PARTS}, is not done")
    ends = np.cumsum(given) if given.ndim else np.arange(1, count + 1) * int(given)
    made, start = [], 0
    for end in np.minimum(ends, int(extent)).tolist():
        part = builder.emit(relax.op.strided_slice(data, [axis], [start], [end]))
        is_kept = sizes is not None or attributes.get("keepdims", 1)
        made.append(part if is_kept else builder.emit(relax.op.squeeze(part, [axis])))
        start = end
    return relax.Tuple(made)


def _summed(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``Einsum``: of several operands as an op, which is taken apart (:mod:`eqsat_layout.passes.einsums_in_pairs`)."""
    equation, operands = attributes["equation"].decode(), [one for one in inputs if one is not None]
    if len(operands) > 2 and "." not in equation:
        return builder.emit(relax.op.einsum(operands, equation.replace(" ", "")))
    return builder.emit_te(topi.einsum, equation, *operands, primfunc_name_hint="einsum")


def _above(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``ThresholdedRelu``: nothing is multiplied by 0, as infinities and NaN would be NaN then."""
    data, dtype = inputs[0], str(inputs[0].ty.dtype)
    is_above = builder.emit(relax.op.greater(data, relax.const(float(attributes["alpha"]), dtype)))
    return builder.emit(relax.op.where(is_above, data, relax.const(0, dtype)))


_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "ThresholdedRelu": _above,
    "Elu": lambda builder, inputs, said: exponential_unit(builder, inputs[0], said["alpha"]),
    "Selu": lambda builder, inputs, said: exponential_unit(builder, inputs[0], said["alpha"], said["gamma"]),
    "LeakyRelu": lambda builder, inputs, said: leaky_unit(builder, inputs[0], said["alpha"]),
    "DynamicQuantizeLinear": lambda builder, inputs, _: quantised_dynamically(builder, inputs[0]),
    "ReduceLogSumExp": log_sum_exp,
    "CumProd": _products,
    "BitCast": _same_bits,
    "ReverseSequence": _turned,
    "MaxPool": pooled_with_places,
    "LpPool": pooled_norms,
    "LpNormalization": _of_length_one,
    "DFT": fourier_transform,
    "STFT": short_time_fourier_transform,
    "IsInf": _infinite,
    "ScatterElements": _scattered,
    "Col2Im": image_of_windows,
    "TensorScatter": cache_updated,
    "Dropout": _all_kept,
    "EyeLike": _diagonal,
    "OneHot": one_hot,
    "Hardmax": hardmax,
    "ReduceMax": lambda builder, inputs, attributes: extreme_of_axes(builder, inputs, attributes, is_max=True),
    "ReduceMin": lambda builder, inputs, attributes: extreme_of_axes(builder, inputs, attributes, is_max=False),
    "DeformConv": _deformed,
    "SplitToSequence": _parts,
    "Einsum": _summed,
    "Det": lambda builder, inputs, _: determinant(builder, inputs[0]),
}
