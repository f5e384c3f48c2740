"""Products and convolutions with fused bias, sum and activation; products with weights of few bits.

In: a node's inputs and attributes. Out: its results, in Relax.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.contrib.operands import (
    EmittedOps,
    Maker,
    constant_array,
    last_axes_exchanged,
    operand_shape,
    refuse_operand,
)


def _activation(op: EmittedOps, x: Any, attributes: dict[str, Any]) -> Any:
    name = attributes.get("activation", "")
    params = [float(one) for one in attributes.get("activation_params", ())]
    if name == "LeakyRelu":
        return op.leakyrelu(x, params[0] if params else 0.01)
    if name == "Clip":
        return op.clip(x, *params)
    if name == "HardSigmoid":
        alpha, beta = params or (0.2, 0.5)
        return op.clip(op.add(op.scaled(x, alpha), op.number(beta, x)), 0, 1)
    if name not in ("", "Relu", "Tanh", "Sigmoid"):
        raise EqsatError(f"with activation={name} is not done")
    return getattr(op, name.lower())(x) if name else x


def _product(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedMatMul``."""
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        raise EqsatError("with transBatchA or transBatchB is not done")
    sides = [
        last_axes_exchanged(op, x) if attributes.get(f"trans{s}") else x for x, s in zip(inputs[:2], "AB", strict=True)
    ]
    return op.scaled(op.matmul(*sides), float(attributes.get("alpha", 1.0)))


def _gemm(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedGemm``."""
    made = _product(op, inputs, attributes)
    if inputs[2] is not None:
        made = op.add(made, op.scaled(inputs[2], float(attributes.get("beta", 1.0))))
    params = {name: float(attributes[f"activation_{name}"]) for name in ("alpha", "beta", "gamma")
              if f"activation_{name}" in attributes}  # fmt: skip
    return _activation(op, made, attributes | {"activation_params": list(params.values())})


def _convolution(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``FusedConv``."""
    x, w, bias, more = inputs[:4]
    axes = len(operand_shape(x)) - 2
    ones = [1] * axes
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise EqsatError(f"with auto_pad={attributes['auto_pad']} is not done")
    made = getattr(relax.op.nn, f"conv{axes}d")(
        x,
        w,
        strides=list(attributes.get("strides", ones)),
        padding=list(attributes.get("pads", [0] * 2 * axes)),
        dilation=list(attributes.get("dilations", ones)),
        groups=int(attributes.get("group", 1)),
    )
    made = op.builder.emit(made)
    if bias is not None:
        made = op.add(made, op.reshape(bias, [1, -1, *ones]))
    if more is not None:
        made = op.add(made, more)
    return _activation(op, made, attributes)


def _quick_gelu(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return op.multiply(inputs[0], op.sigmoid(op.scaled(inputs[0], float(attributes.get("alpha", 1.702)))))


def _product_of_packed_weights(op: EmittedOps, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``MatMulNBits``: weights of 2, 4 or 8 bits, packed lowest bits first; a scale and a zero per block of a row."""
    x, bias = inputs[0], inputs[5]
    refuse_operand(inputs[4], "g_idx")
    rows, columns, bits, block = (int(attributes[name]) for name in ("N", "K", "bits", "block_size"))
    if bits not in (2, 4, 8):
        raise EqsatError(f"with bits={bits} is not done")
    blocks = -(-columns // block)
    scales = constant_array(inputs[2], "scales").astype("float32").reshape(rows, blocks)
    numbers = _unpacked(constant_array(inputs[1], "weights").reshape(rows, -1), bits)[:, : blocks * block]
    zeros: Any = float(1 << (bits - 1))
    if inputs[3] is not None:
        given = constant_array(inputs[3], "zeros").reshape(rows, -1)
        own = _unpacked(given, bits) if given.dtype == np.uint8 else given
        zeros = own[:, :blocks].astype("float32").reshape(rows, blocks, 1)
    less = (numbers.reshape(rows, blocks, block).astype("float32") - zeros).reshape(rows, -1)[:, :columns]
    weights = op.multiply(_as_bytes(op, less), relax.const(scales.repeat(block, axis=1)[:, :columns], "float32"))
    made = op.matmul(x, op.like(op.permute_dims(weights, [1, 0]), x))
    return made if bias is None else op.add(made, bias)


def _as_bytes(op: EmittedOps, numbers: np.ndarray[Any, Any]) -> Any:
    """The numbers as bytes cast to float32, if int8 holds them: then the weights may stay bytes."""
    small = numbers.astype("int8") if np.abs(numbers).max(initial=0) < 128 else None
    if small is None or not np.array_equal(small, numbers):
        return relax.const(numbers, "float32")
    return op.astype(relax.const(small, "int8"), "float32")


def _unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(packed.shape[0], -1)


MAKERS: Final[dict[str, Maker]] = {
    "FusedMatMul": _product,
    "FusedGemm": _gemm,
    "FusedConv": _convolution,
    "QuickGelu": _quick_gelu,
    "MatMulNBits": _product_of_packed_weights,
}
"""By the names of the ops."""
