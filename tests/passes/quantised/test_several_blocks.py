"""Quantised values of functions that are several blocks of dataflow."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

import eqsat_layout


def test_bytes_of_one_block_are_multiplied_in_another() -> None:
    """What the product was of was looked for within the first block, whose variables are unknown outside of it: "the
    module is not well formed: DataflowVar is used outside DataflowBlock"."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 3, 8), "int8"))
    scale, zero = relax.const(0.5, "float32"), relax.const(-128, "int8")
    weights = np.arange(-16, 16, dtype="int8").reshape(8, 4)
    with builder.function("main", [x]):
        with builder.dataflow():
            within = builder.emit(op.permute_dims(builder.emit(op.abs(x)), [1, 0, 2]))
            middle = builder.emit_output(op.permute_dims(within, [1, 0, 2]))
        data = builder.emit(op.dequantize(middle, scale, zero, axis=0))
        own = builder.emit(op.dequantize(relax.const(weights), scale, relax.const(0, "int8"), axis=1))
        made = builder.emit(op.matmul(data, own))
        builder.emit_func_output(made)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    given = np.arange(96, dtype="int8").reshape(4, 3, 8) - 48
    expected = (np.abs(given).astype("float32") + 128) * 0.5 @ (weights * 0.5)
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(given)).numpy(), expected, rtol=1e-5)
