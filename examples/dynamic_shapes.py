"""Sizes that are known at run time only: one program for all, or one for each of some and one for all others."""

import numpy as np
from tvm import relax, tirx

import eqsat_layout


def program() -> object:
    """A convolution and a ReLU over a batch of any size."""
    batch = tirx.Var("batch", "int64")
    x = relax.Var("x", relax.TensorType((batch, 16, 16, 16), "float32"))
    weight = np.random.default_rng(0).standard_normal((32, 16, 3, 3), dtype=np.float32) * 0.1
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1))
            result = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(result)
    return builder.get()


# One program. Costs take a size for "batch", and the plan says which.
general = eqsat_layout.Session(program())
print(*general.plan.notes, sep="\n")

# A program for a batch of 1, one for a batch of 4, and one for all others; which one runs is decided by the input.
several = eqsat_layout.Session(program(), shapes={"x": ((1, 4), 16, 16, 16)})

for batch in (1, 3, 4):
    image = np.random.default_rng(batch).standard_normal((batch, 16, 16, 16), dtype=np.float32)
    one, other = (session.run(None, {"x": image})[0] for session in (general, several))
    print(f"batch {batch}: {other.shape}, the two differ by {np.abs(one - other).max():.1g}")
    assert other.shape == (batch, 32, 16, 16)
    assert np.allclose(one, other, rtol=1e-3, atol=1e-4)
