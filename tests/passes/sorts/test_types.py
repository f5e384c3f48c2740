"""Sorts are of what TVM sorts, and give no more than there is."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import eqsat_layout


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_largest_of_fewer_elements_than_are_asked_for(dtype: str) -> None:
    """TVM wrote what lay behind them in memory into a result that is larger than its type."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(op.topk(x, k=1000, axis=-1, ret_type="both"))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    values, places = machine["main"](tvm.runtime.tensor(np.array([[1, 3, 2], [4, 4, 5]], dtype)))
    np.testing.assert_array_equal(values.numpy(), [[3, 2, 1], [5, 4, 4]])
    np.testing.assert_array_equal(places.numpy(), [[1, 2, 0], [2, 0, 1]])
