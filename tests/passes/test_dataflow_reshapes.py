"""What TVM takes for reshapes, where its analysis of kernels ends in an error."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

import eqsat_layout


def test_heads_of_a_cache_of_open_length_are_repeated() -> None:
    """As in attention whose heads share keys, past and new ones: "InternalError: Check failed: CanProveDivisible"."""
    n, new = tirx.Var("n", "int64"), 3
    past = relax.Var("past", relax.TensorType((2, 2, n, 8), "float32"))
    keys = relax.Var("keys", relax.TensorType((2, 2, new, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [past, keys]):
        with builder.dataflow():
            cache = builder.emit(relax.op.concat([past, keys], 2))
            repeated = builder.emit(relax.op.repeat(cache, 2, 1))
            results = builder.emit_output(relax.Tuple([cache, repeated]))
        builder.emit_func_output(results)
    session = eqsat_layout.Session(builder.finalize())
    rng = np.random.default_rng(0)
    for length in (0, 4):
        feed = {
            name: rng.standard_normal((2, 2, size, 8), "float32") for name, size in (("past", length), ("keys", new))
        }
        wanted = np.concatenate([feed["past"], feed["keys"]], 2)
        for got, one in zip(session.run(None, feed), (wanted, wanted.repeat(2, 1)), strict=True):
            np.testing.assert_array_equal(got, one)
