"""Softmax, norms and means: one launch, a block for a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from targets.cuda.running import Array, Kernels, inputs_of, relative_error, result_of
from tvm import relax, te, tirx
from tvm.relax import op

from eqsat_layout.errors import Refused
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.targets.cuda.kernels.row_kernel import row_kernel


def func_of(body: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """The one PrimFunc that an op is."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(body(*params))
        builder.emit_func_output(output)
    (func,) = (one for _, one in legalize(builder.get()).functions_items() if isinstance(one, tvm.tirx.PrimFunc))
    return func


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def rms_norm(x: Array, scale: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


CASES = {
    "softmax": (lambda x: op.nn.softmax(x), softmax, [(2, 3, 50)]),
    "softmax of long rows": (lambda x: op.nn.softmax(x), softmax, [(3, 1000)]),
    "layer norm": (lambda *x: op.nn.layer_norm(*x, axes=[-1], epsilon=1e-5), layer_norm, [(2, 3, 300), (300,), (300,)]),
    "rms norm": (lambda *x: op.nn.rms_norm(*x, axes=[-1], epsilon=1e-5), rms_norm, [(4, 96), (96,)]),
    "mean": (lambda x: op.mean(x, axis=[2, 3]), lambda x: x.mean((2, 3)), [(2, 5, 7, 9)]),
    "mean, channels last": (lambda x: op.mean(x, axis=[1, 2]), lambda x: x.mean((1, 2)), [(2, 7, 9, 5)]),
    "largest": (lambda x: op.max(x, axis=[-1], keepdims=True), lambda x: x.max(-1, keepdims=True), [(3, 70)]),
}


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str) -> None:
    body, reference, shapes = CASES[name]
    func = func_of(body, *shapes)
    kernels = Kernels(row_kernel(func))
    assert len(kernels.sources) == 1
    arrays = inputs_of(func)
    first = result_of(kernels, arrays)
    assert relative_error(first, reference(*(array.astype("float64") for array in arrays[:-1]))) < 1e-6
    for order in (1, 2):
        assert (result_of(kernels, arrays, order) == first).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_halves(dtype: str) -> None:
    func = func_of(lambda x: op.nn.softmax(x), (3, 200), dtype=dtype)
    arrays = inputs_of(func)
    result = result_of(Kernels(row_kernel(func)), arrays)
    assert relative_error(result, softmax(arrays[0].astype("float64"))) < (2e-3 if dtype == "float16" else 2e-2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_that_shared_memory_is_too_small_for(dtype: str) -> None:
    """Powers are computed twice then. Several launches would add up halves in halves: 2000 and one is 2000."""
    func = func_of(lambda x: op.nn.softmax(x), (2, 30000), dtype=dtype)
    arrays = inputs_of(func)
    kernels = Kernels(row_kernel(func))
    assert len(kernels.sources) == 1
    assert relative_error(result_of(kernels, arrays), softmax(arrays[0].astype("float64"))) < 2e-3


def test_many_rows_that_lie_apart_are_refused() -> None:
    """A thread for each reads beside its neighbours. A few would leave the machine idle: the means of an EfficientNet
    were 12544 steps of 8 threads."""
    with pytest.raises(Refused, match="lie apart"):
        row_kernel(func_of(lambda x: op.sum(x, axis=[1]), (64, 40, 512)))
    row_kernel(func_of(lambda x: op.sum(x, axis=[1]), (4, 40, 8)))


def test_short_rows_are_refused() -> None:
    with pytest.raises(Refused, match="one thread"):
        row_kernel(func_of(lambda x: op.sum(x, axis=[1]), (400, 3)))


def numbered_through() -> Any:
    """A layer norm without scales of 2x5 rows, read as two axes and written, and shifted, as one."""
    x = te.placeholder((2, 5, 96), "float32", name="x")
    i, j = (te.reduce_axis((0, 96), name) for name in "ij")
    mean = te.compute((2, 5), lambda a, b: te.sum(x[a, b, i] / 96, axis=i), name="mean")

    def away(p: Any, c: Any) -> Any:
        return x[p // 5, p % 5, c] - mean[p // 5, p % 5]

    spread = te.compute((10,), lambda p: te.sum(away(p, j) * away(p, j) / 96, axis=j), name="spread")
    return te.create_prim_func([x, te.compute((10, 96), lambda p, c: away(p, c) * tirx.rsqrt(spread[p] + 1e-5))])


def test_rows_that_are_numbered_through_are_the_same_rows() -> None:
    """BERT's norms of 32 texts were three launches each, those of one text were one."""
    func = numbered_through()
    kernels = Kernels(row_kernel(func))
    assert len(kernels.sources) == 1
    arrays = inputs_of(func)
    x = arrays[0].astype("float64").reshape(10, 96)
    expected = layer_norm(x, np.ones(96), np.zeros(96))
    for order in (0, 1):
        assert relative_error(result_of(kernels, arrays, order), expected) < 1e-6


def test_what_reads_other_rows_is_refused() -> None:
    x = te.placeholder((4, 96), "float32", name="x")
    i = te.reduce_axis((0, 96), "i")
    total = te.compute((4,), lambda p: te.sum(x[p, i], axis=i), name="total")
    y = te.compute((2, 2, 96), lambda a, b, c: x[a * 2 + b, c] - total[b * 2 + a], name="y")
    with pytest.raises(Refused, match="another row of total"):
        row_kernel(te.create_prim_func([x, y]))
