"""Reductions along an axis without elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

import eqsat_layout


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        (lambda x: relax.op.prod(x, 1), np.ones((2, 3))),
        (lambda x: relax.op.max(x, [1]), np.full((2, 3), np.finfo("float32").min)),
        (lambda x: relax.op.argmax(x, 1), np.full((2, 3), -1)),
        (lambda x: relax.op.matmul(relax.op.permute_dims(x, [0, 2, 1]), x), np.zeros((2, 3, 3))),
    ],
    ids=["product", "largest", "place", "matrix product"],
)
def test_they_give_what_they_begin_with(make_module: Callable[..., Any], reduce: Any, expected: Any) -> None:
    """Memory that nobody wrote came back."""
    session = eqsat_layout.Session(make_module(lambda emit, x: emit(reduce(emit(relax.op.exp(x)))), (2, 0, 3)))
    (result,) = session.run(None, {session.inputs[0].name: np.empty((2, 0, 3), "float32")})
    np.testing.assert_array_equal(result, expected)
