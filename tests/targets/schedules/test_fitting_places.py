"""Elements that stages make, read at places of other types than those of their axes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import eqsat_layout


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_weights_of_classes_that_are_bytes(dtype: str) -> None:
    """The gradient of a negative log likelihood was computed without a schedule, and with a warning (here it is an
    error): its weights were inlined at such a place, and "mismatched types. uint8 vs. int64" ended the lowering."""
    builder, shapes = relax.BlockBuilder(), {"g": ((), "int64"), "p": ((4, 3), "int64"), "t": ((4,), dtype)}
    params = [relax.Var(name, relax.TensorType(*one)) for name, one in {**shapes, "w": ((3,), "int64")}.items()]
    with builder.function("main", params):
        grad = builder.emit(relax.op.grad.nll_loss_backward(*params, reduction="sum", ignore_index=1))
        builder.emit_func_output(grad)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    given = [np.array(3), np.zeros((4, 3), "int64"), np.array([0, 1, 2, 0], dtype), np.array([4, 5, 6])]
    expected = [[-12, 0, 0], [0, 0, 0], [0, 0, -18], [-12, 0, 0]]
    assert machine["main"](*map(tvm.runtime.tensor, given)).numpy().tolist() == expected
