"""Tuning: kernels that decide how a model is best compiled are measured on this machine, and kept for later plans."""

import tempfile

import numpy as np
from tvm import relax

import eqsat_layout


def program() -> object:
    """A small convolution and a ReLU."""
    x = relax.Var("x", relax.TensorType((1, 16, 14, 14), "float32"))
    weight = relax.const(np.ones((16, 16, 1, 1), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, weight))))
        builder.emit_func_output(result)
    return builder.get()


with tempfile.TemporaryDirectory() as folder:
    # Without database= they are kept where every later plan finds them. No kernel is started after ten seconds; a
    # second run would go on from there.
    report = eqsat_layout.tune(program(), database=folder, seconds=10.0)

print(f"{report.measured} kernels measured on {report.machine}, {report.left} left")
if report.cost is not None and report.cost_before is not None:
    print(
        f"by what was measured, the best plan takes {report.cost * 1e6:.0f} us; before: {report.cost_before * 1e6:.0f}"
    )
assert report.measured > 0
