"""Sizes of operands that are expressions, as symbols of a kernel."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.passes.size_symbols import with_size_symbols
from eqsat_layout.tir.structural import nodes_of


def test_a_reshape_along_other_axes_divides_by_symbols() -> None:
    """TVM wrote such divisions out for all signs, one within the other: its code generator took 40 s, or refused."""
    batch, n = tirx.Var("b", "int64"), tirx.Var("n", "int64")
    rows, columns = n // 3 - 1, n // 3 * 2 - 3
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([batch * 4, rows, columns], "float32"))
    sizes = relax.Var("sizes", relax.TensorType([batch, n], "float32"))
    with builder.function("main", [x, sizes]):
        with builder.dataflow():
            made = builder.emit(relax.op.reshape(x, [batch, 4, rows, columns]))
            made = builder.emit_output(relax.op.nn.relu(made))
        builder.emit_func_output(made)
    mod = builder.get()
    (func,) = [f for name, f in legalize(mod).functions_items() if "reshape" in str(name.name_hint)]
    divisors = [one.b for one in nodes_of(with_size_symbols(func).body, tirx.FloorDiv, tirx.FloorMod)]
    assert divisors
    assert not [one for one in divisors if nodes_of(one, tirx.FloorDiv, tirx.Add, tirx.Sub)]

    data = np.random.default_rng(0).standard_normal((8, 2, 3), "float32")
    session = eqsat_layout.Session(mod)
    (result,) = session.run(None, {"x": data, "sizes": np.zeros((2, 9), "float32")})
    np.testing.assert_array_equal(result, np.maximum(data, 0).reshape(2, 4, 2, 3))


def test_other_kernels_stay_as_they_are() -> None:
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, n * 2], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.reshape(x, [n * 2, n]))
        builder.emit_func_output(made)
    (func,) = [f for f in legalize(builder.get()).functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert with_size_symbols(func).same_as(func)
