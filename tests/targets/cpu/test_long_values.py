"""Functions in one another: each uses what it is given several times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

import eqsat_layout

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "exp": (relax.op.exp, np.exp),
    "log": (relax.op.log, np.log),
    "tanh": (relax.op.tanh, np.tanh),
    "add": (lambda x: relax.op.add(x, relax.const(1.0)), lambda x: x + 1),
}
ROW = np.linspace(-6, 6, 32).astype("float32")


@pytest.mark.parametrize("chain", ["exp add log tanh", "exp tanh", "tanh exp tanh exp tanh exp log"])
def test_functions_of_functions_compile_and_are_right(chain: str) -> None:
    """Mish as torch writes it, the first of these, was never done: named values were written out."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([32], "float32"))
    wanted = ROW.astype("float64")
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for name in chain.split():
                made, reference = FUNCTIONS[name]
                value, wanted = builder.emit(made(value)), reference(wanted)
            result = builder.emit_output(relax.op.multiply(value, x))
        builder.emit_func_output(result)
    (got,) = eqsat_layout.Session(builder.get()).run(None, {"x": ROW})
    np.testing.assert_allclose(got, wanted * ROW, rtol=3e-5, atol=1e-6)
