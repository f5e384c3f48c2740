"""Sizes that do not fit together, which only a run can tell."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.errors import InputError
from eqsat_layout.passes.fitting_reshapes import check_reshapes


def module() -> tvm.IRModule:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = relax.Var("x", relax.TensorType([n, 4], "float32")), relax.Var("y", relax.TensorType([m, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        longer = builder.emit(relax.op.concat([x, x]))
        same = builder.match_cast(y, relax.TensorType([2 * n, 4], "float32"))
        builder.emit_func_output(builder.emit(relax.op.add(longer, same)))
    return builder.get()


def test_sizes_that_do_not_fit_together_are_named() -> None:
    """A raw RuntimeError of TVM's machine, with a pointer into its heap."""
    session = eqsat_layout.Session(module())
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(session.run(None, {"x": x, "y": np.ones((6, 4), "float32")})[0], np.full((6, 4), 2))
    said = "where 'x' is float32 (3, 4), 'y' is float32 (5, 4), axis 0 of a tensor"
    with pytest.raises(InputError, match=re.escape(said) + r".* is 5, not 6"):
        session.run(None, {"x": x, "y": np.ones((5, 4), "float32")})


def reshaping(*sizes: Any) -> tvm.IRModule:
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(builder.emit(relax.op.add(x, x)), [size(n) for size in sizes]))
            made = builder.emit_output(builder.emit(relax.op.add(rows, rows)))
        builder.emit_func_output(made)
    return builder.get()


@pytest.mark.parametrize(
    ("module", "fits", "said"),
    [
        (reshaping(lambda _: 6, lambda _: 2), 3, "a reshape inside reads 8 elements more than it gives"),
        (reshaping(lambda n: n * 4 // 3, lambda _: 3), 6, "a reshape inside reads 2 elements more than it gives"),
    ],
    ids=["to numbers", "to what is left"],
)
def test_a_reshape_that_does_not_fit_is_an_error(module: tvm.IRModule, fits: int, said: str) -> None:
    """As in TVM, elements were left out, or others read: results of the wrong sizes without a word."""
    session = eqsat_layout.Session(module)
    x = np.arange(4 * fits, dtype="float32").reshape(fits, 4)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0].ravel(), 4 * x.ravel())
    with pytest.raises(InputError, match=said):
        session.run(None, {"x": np.ones((5, 4), "float32")})


def test_a_reshape_that_is_known_to_fit_is_not_checked() -> None:
    mod = reshaping(lambda n: 2 * n, lambda _: 2)
    assert check_reshapes(mod) is mod or tvm.ir.structural_equal(check_reshapes(mod), mod)
