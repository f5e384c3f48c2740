"""Kernels that name integers, with indices in 32 bits."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

import eqsat_layout


def test_a_logarithm_within_whole_numbers_is_built_as_scheduled() -> None:
    """T5's relative positions: "Detected bound for v conflicts with memorization", and the kernel was left
    unscheduled, which is an error in tests."""
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, n], "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            logs = builder.emit(relax.op.log(builder.emit(relax.op.astype(x, "float32"))))
            far = builder.emit(relax.op.astype(builder.emit(relax.op.multiply(logs, relax.const(3.0))), "int64"))
            most = builder.emit(relax.op.minimum(far, relax.const(15, "int64")))
            near = builder.emit(relax.op.less(x, relax.const(8, "int64")))
            made = builder.emit_output(relax.op.where(near, x, most))
        builder.emit_func_output(made)
    data = np.arange(1, 101).reshape(10, 10)
    session = eqsat_layout.Session(builder.get())
    (result,) = session.run(None, {"x": data})
    wanted = np.where(data < 8, data, np.minimum((np.log(data.astype("float32")) * 3).astype("int64"), 15))
    np.testing.assert_array_equal(result, wanted)
