"""What a program reads at indices that it is given lies in its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_equal

import eqsat_layout
from eqsat_layout.passes.guarded_reads import guard_reads

FAR = np.array([1 << 62, -(1 << 62), 1 << 31, -1, 8, 2])
X = np.arange(32, dtype="float32").reshape(8, 4)


def run(build: Callable[..., Any], *inputs: Any) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{k}", relax.TensorType(a.shape, str(a.dtype))) for k, a in enumerate(inputs)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *params))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


def test_take_is_clipped() -> None:
    got = run(lambda b, x, i: R.take(x, i, axis=0), X, FAR)
    np.testing.assert_array_equal(got, X[np.clip(FAR, 0, 7)])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "uint64"])
def test_indices_of_every_type_are(dtype: str) -> None:
    ends = np.iinfo(dtype)
    at = np.array([ends.max, ends.min, 3], dtype)
    np.testing.assert_array_equal(
        run(lambda b, x, i: R.take(x, i, axis=0), X, at), X[[7, 0 if ends.min < 0 else ends.min, 3]]
    )


def test_an_index_that_overflows_reads_within() -> None:
    at = np.array([(1 << 63) - 1, -(1 << 63), 1, (1 << 63) - 5])
    for apart in (5, -5):
        got = run(lambda b, x, i, d=apart: R.take(x, b.emit(R.add(i, relax.const(d, "int64"))), axis=0), X, at)
        assert all(any((row == one).all() for one in X) for row in got)


def test_elements_and_places_are() -> None:
    at = np.stack([FAR] * 4, axis=1)
    got = run(lambda b, x, i: R.gather_elements(x, i, axis=0), X, at)
    np.testing.assert_array_equal(got, np.take_along_axis(X, np.clip(at, 0, 7), 0))
    places = np.array([[1 << 62, 0], [-1, 3], [1, 1 << 40], [1, -(1 << 40)], [1, 2]])
    got = run(lambda b, x, i: R.gather_nd(x, i), X, places)
    np.testing.assert_array_equal(got, X[np.clip(places[:, 0], 0, 7), np.clip(places[:, 1], 0, 3)])


def test_of_no_elements_zeros_are_read() -> None:
    got = run(lambda b, x, i: R.take(x, i, axis=0), np.zeros((0, 4), "float32"), FAR)
    np.testing.assert_array_equal(got, np.zeros((6, 4), "float32"))


def test_symbolic_sizes_are_ends_too() -> None:
    n, builder = tvm.tirx.Var("n", "int64"), relax.BlockBuilder()
    x, i = relax.Var("x", relax.TensorType((n, 4), "float32")), relax.Var("i", relax.TensorType((6,), "int64"))
    with builder.function("main", [x, i]):
        with builder.dataflow():
            at = builder.emit(R.add(i, relax.const(5, "int64")))
            result = builder.emit_output(R.take(x, at, axis=0))
        builder.emit_func_output(result)
    main = relax.VirtualMachine(eqsat_layout.compile(builder.get()), tvm.cpu())["main"]
    for rows in (8, 1, 0):
        data, far = np.ones((rows, 4), "float32"), np.where(FAR.max() == FAR, (1 << 63) - 1, FAR)
        got = main(tvm.runtime.tensor(data), tvm.runtime.tensor(far)).numpy()
        np.testing.assert_array_equal(got, np.full((6, 4), rows > 0, "float32"))


@I.ir_module
class Plain:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((8,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("plain"):
                v = T.axis.spatial(4, i)
                y[v] = x[v + 4]


def test_known_indices_stay() -> None:
    assert structural_equal(guard_reads(Plain), Plain)


@pytest.mark.parametrize("scale", [float("nan"), 3e38])
def test_loops_whose_ends_are_no_numbers_have_an_end(scale: float) -> None:
    """LLVM took the end of a loop for anything where a float that it knew to be NaN was cast: the process died."""
    boxes = relax.const(np.zeros((1, 5), "float32"))
    image = np.ones((2, 3, 4, 4), "float32")
    got = run(lambda b, x: R.vision.roi_align(x, boxes, (1, 1), scale, 0, False, "NCHW"), image)
    assert got.shape == (1, 3, 1, 1)
