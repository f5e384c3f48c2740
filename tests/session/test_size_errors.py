"""Sizes that do not fit together, which only a run can tell."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.errors import InputError


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
