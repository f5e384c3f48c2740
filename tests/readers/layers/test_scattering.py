"""Elements put by fewer indices than the data has along the other axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.scattering import scattered


def module(shape: Sequence[Any], indices: Sequence[Any], axis: int, reduction: str) -> Any:
    builder = relax.BlockBuilder()
    x, u = (relax.Var(name, relax.TensorType(own, "float32")) for name, own in (("x", shape), ("u", indices)))
    i = relax.Var("i", relax.TensorType(indices, "int64"))
    with builder.function("main", [x, i, u]):
        with builder.dataflow():
            output = builder.emit_output(scattered(builder, x, i, u, axis, reduction))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize(
    ("indices", "axis"),
    [((4, 3, 5), 1), ((3, 2, 2), 2), ((3, 2, 2), -3), ((1, 7, 4), 1), ((4, 3, 2), 2), ((2, 3, 9), 2)],
)
@pytest.mark.parametrize("reduction", ["update", "add", "max"])
def test_each_goes_where_its_own_place_says(
    run: Callable[..., Any], indices: tuple[int, ...], axis: int, reduction: str
) -> None:
    """TVM put what was for row 2 into row 1: ONNX's ScatterElements and torch's scatter gave other numbers."""
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((4, 3, 5)).astype("float32"), rng.standard_normal(indices).astype("float32")
    order = np.argsort(rng.random((*indices[: axis % 3], 9, *indices[axis % 3 + 1 :])), axis)
    i = (np.take(order, range(indices[axis]), axis) % x.shape[axis]).astype("int64")
    expected = x.copy()
    combine = {"update": lambda _, new: new, "add": np.add, "max": np.maximum}[reduction]
    for at in np.ndindex(*indices):
        place = list(at)
        place[axis] = int(i[at])
        expected[tuple(place)] = combine(expected[tuple(place)], u[at])
    executable = eqsat_layout.compile(module(x.shape, indices, axis, reduction))
    np.testing.assert_allclose(run(executable, x, i, u), expected, rtol=1e-6)


def test_axes_of_unknown_size_are_compared_by_name() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    assert module((n, 5), (n, 2), 1, "update") is not None
    with pytest.raises(EqsatError, match="fewer than the data along an axis of unknown size"):
        module((n, 5), (m, 2), 1, "update")


def test_the_kernel_of_tvm_still_writes_elsewhere(run: Callable[..., Any]) -> None:
    """It takes the rows of the indices for those of the data: when this fails, the slices can go."""
    x, u, i = np.zeros((2, 2, 2), "float32"), np.ones((2, 1, 1), "float32"), np.zeros((2, 1, 1), "int64")
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{k}", relax.TensorType(a.shape, str(a.dtype))) for k, a in enumerate((x, i, u))]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(relax.op.scatter_elements(*params, 2)))
        builder.emit_func_output(output)
    made = run(tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"})), x, i, u)
    assert made[1, 0, 0] == 0
