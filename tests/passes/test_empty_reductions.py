"""Reductions along an axis without elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
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


@pytest.mark.parametrize("approx", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_places_among_as_many_as_are_known_at_run_time_only(axis: int, approx: bool) -> None:
    """Of none, memory that nobody wrote came back: the reduction begins at the first step of a loop that has none."""
    shape: list[Any] = [3, 3]
    shape[axis] = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.argmax(x, axis)))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.finalize(), approx=approx), tvm.cpu())
    for count in (0, 5):
        shape[axis] = count
        array = np.random.default_rng(count).standard_normal(shape).astype("float32")
        expected = np.argmax(array, axis) if count else np.full(3, -1)
        found = [machine["main"](tvm.runtime.tensor(array)).numpy() for _ in range(2)]
        np.testing.assert_array_equal(found, [expected] * 2)
