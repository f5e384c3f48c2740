"""Softmax and its kin over rows of any length, and over rows that other stages see as several axes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX512, built
from tvm import relax, te, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.targets.cpu.model.chain import row_axes
from eqsat_layout.targets.cpu.objects import build_scheduled
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.whole_vectors import in_whole_vectors
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.schedules.fuse_rows import fuse_axes
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

LEAST = float(np.finfo("float32").min)


def softmax(digits, rows, width, *, shift=0, indices="int64"):
    """Reductions number matrices by ``digits``, the stages between by one axis, as after a change of layouts."""
    count = math.prod(digits)
    x = te.placeholder((count, rows, width), name="x")

    def number(indices):
        flat = 0
        for index, extent in zip(indices, digits, strict=True):
            flat = flat * extent + index
        return flat

    def places(matrix):
        weights = [math.prod(digits[place + 1 :]) for place in range(len(digits))]
        return [matrix // w % d if p else matrix // w for p, (w, d) in enumerate(zip(weights, digits, strict=True))]

    def reduced(source, combine, name):
        k = te.reduce_axis((0, width), f"{name}_k")
        return te.compute((*digits, rows), lambda *i: combine(source[number(i[:-1]), i[-1], k], axis=k), name=name)

    most = reduced(x, te.max, "most")
    power = te.compute(x.shape, lambda m, i, j: te.exp(x[m, i, j] - most[(*places(m), i)]), name="power")
    total = reduced(power, te.sum, "total")
    result = te.compute(
        x.shape,
        lambda m, i, j: power[m, i, (j + shift) % width if shift else j] / total[(*places(m), i)],
        name="result",
    )
    return te.create_prim_func([x, result], index_dtype_override=indices)


def expected(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def run(func, x):
    scheduled = schedule_primfunc(func.with_attr("global_symbol", "main"), AVX512)
    library = built(tvm.IRModule({"main": scheduled}))
    result = tvm.runtime.tensor(np.full(x.shape, np.nan, "float32"))
    library["main"](tvm.runtime.tensor(x), result)
    return scheduled, result.numpy()


@pytest.mark.parametrize(("digits", "indices"), [((8, 12), "int64"), ((2, 4, 3), "int64"), ((8, 12), "int32")])
def test_rows_of_reductions_are_those_of_the_stages_between(digits, indices):
    """Softmax of eight images fell apart into four passes over memory: 2.0 ms instead of 0.9."""
    func = softmax(digits, 5, 32, indices=indices)
    sch = new_schedule(func)
    assert row_axes(stages_of(sch)) == 0
    fused = stages_of(fuse_axes(sch))
    assert row_axes(fused) == 2
    assert [axis.extent for axis in fused[0].axes] == [math.prod(digits), 5, 32]
    x = np.random.default_rng(1).standard_normal((math.prod(digits), 5, 32)).astype("float32")
    scheduled, got = run(func, x)
    assert scheduled.script().count("T.parallel") == 1
    np.testing.assert_allclose(got, expected(x), rtol=1e-5)


def test_axes_that_somebody_tells_apart_stay():
    """A product of matrices, whose operands have one of the axes each."""
    x, y = te.placeholder((4, 16), name="x"), te.placeholder((16, 3), name="y")
    k = te.reduce_axis((0, 16), "k")
    product = te.compute((4, 3), lambda a, b: te.sum(x[a, k] * y[k, b], axis=k), name="product")
    flat = te.compute((12,), lambda m: product[m // 3, m % 3] * 2.0, name="flat")
    func = te.create_prim_func([x, y, flat], index_dtype_override="int64")
    sch = new_schedule(func)
    assert fuse_axes(sch) is sch


@settings(max_examples=tries(20), deadline=None)
@given(width=st.integers(17, 80), rows=st.integers(1, 9), low=st.sampled_from([LEAST, -np.inf, -3.0]))
def test_rows_of_any_length_are_in_vectors(width, rows, low):
    """Also where some elements are -inf, as masks make them."""
    x = np.random.default_rng(width).standard_normal((8, rows, width)).astype("float32")
    x[:, :, ::5] = low
    scheduled, got = run(softmax((8,), rows, width), x)
    text = scheduled.script()
    assert text.count("T.parallel") == 1
    assert "T.vectorized(T.int64(16))" in text
    np.testing.assert_allclose(got, expected(x), rtol=1e-5, atol=1e-30)


def test_an_element_in_two_vectors_counts_once():
    """Sums of ones: 13 vectors of 16 hold 208 elements of 197."""
    _, got = run(softmax((4,), 6, 197), np.zeros((4, 6, 197), "float32"))
    np.testing.assert_allclose(got, 1 / 197, rtol=1e-6)


@pytest.mark.parametrize("width", [7, 16, 64])
def test_rows_that_need_no_second_look_stay(width):
    assert in_whole_vectors(new_schedule(softmax((4,), 6, width)), 16) is None


def test_rows_that_read_other_elements_of_themselves_stay():
    func = softmax((4,), 6, 37, shift=5)
    assert in_whole_vectors(new_schedule(func), 16) is None
    x = np.random.default_rng(2).standard_normal((4, 6, 37)).astype("float32")
    np.testing.assert_allclose(run(func, x)[1], np.roll(expected(x), -5, axis=-1), rtol=1e-5)


def test_a_reduction_of_other_elements_of_a_row_stays():
    """Of every third element of what a stage before made."""
    x = te.placeholder((16, 6, 37), name="x")
    k = te.reduce_axis((0, 12), "k")
    power = te.compute(x.shape, lambda m, i, j: te.exp(x[m, i, j]), name="power")
    total = te.compute((16, 6), lambda m, i: te.sum(power[m, i, k * 3], axis=k), name="total")
    result = te.compute(x.shape, lambda m, i, j: power[m, i, j] / total[m, i], name="result")
    func = te.create_prim_func([x, result], index_dtype_override="int64")
    assert in_whole_vectors(new_schedule(func), 16) is None
    data = np.random.default_rng(4).standard_normal((16, 6, 37)).astype("float32")
    power = np.exp(data)
    wanted = power / power[..., :36:3].sum(-1, keepdims=True)
    np.testing.assert_allclose(run(func, data)[1], wanted, rtol=1e-5)


def test_a_reduction_of_another_kind_stays():
    x = te.placeholder((4, 37), name="x")
    k = te.reduce_axis((0, 37), "k")
    least = te.comm_reducer(
        lambda a, b: tirx.Select(a < b, a, b), lambda dtype: tvm.tirx.max_value(dtype), name="least"
    )
    low = te.compute((4,), lambda i: least(x[i, k], axis=k), name="low")
    y = te.compute(x.shape, lambda i, j: x[i, j] - low[i], name="y")
    func = te.create_prim_func([x, y], index_dtype_override="int64")
    assert in_whole_vectors(new_schedule(func), 16) is None


@pytest.mark.parametrize("width", [24, 40, 168])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_stage_reads_two_sums_of_one_shape(rows, width):
    """One of the two was no operand of what was made of them, so that it was worked out after: EdgeNeXt gave NaN."""
    shapes = {"x": (rows, width), "scale": (width,), "shift": (width,)}
    params = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(relax.op.nn.layer_norm(*params, axes=[-1], epsilon=1e-6)))
    (func,) = [f for f in legalize(builder.get()).functions.values() if isinstance(f, tirx.PrimFunc)]
    scheduled = schedule_primfunc(func.with_attr("global_symbol", "main"), replace(AVX512, cores=1))
    library = built(tvm.IRModule({"main": scheduled}))
    array = np.random.default_rng(0).standard_normal((rows, width)).astype("float32")
    got = tvm.runtime.tensor(np.zeros_like(array))
    given = array, np.ones(width, "float32"), np.zeros(width, "float32")
    library["main"](*map(tvm.runtime.tensor, given), got)
    wanted = (array - array.mean(-1, keepdims=True)) / array.std(-1, keepdims=True)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [17, 31, 49, 384, 386])
@pytest.mark.parametrize("reduce", [relax.op.sum, relax.op.max, relax.op.mean])
def test_sums_of_rows_of_any_length_are_in_vectors(length, reduce):
    """Sums whose results had a unit axis, and means of 386 elements, took up to six times as long as softmax's."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((24, length), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.normalize(reduce(x, 1, True)))
    func = next(f for f in legalize(bb.get()).functions.values() if isinstance(f, tirx.PrimFunc))
    done = schedule_primfunc(func.with_attr("global_symbol", "main"), AVX512)
    assert "_rf" in done.script(), "partial results in lanes"
    data = np.random.default_rng(0).integers(-9, 9, (24, length)).astype("float32")
    got = tvm.runtime.tensor(np.zeros((24, 1), "float32"))
    built(tvm.IRModule({"main": done}))["main"](tvm.runtime.tensor(data), got)
    wanted = {"sum": data.sum, "max": data.max, "mean": data.mean}[reduce.__name__](1, keepdims=True)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(("width", "is_one"), [(16, True), (24, True), (20, True), (22, False)])
def test_rows_of_several_axes_stay_in_the_cache(width, is_one):
    """Images of 56 x 56 that are normalised took 1.4 times as long: half a vector divides 56, and their sums were a
    pass of their own over memory."""
    x = te.placeholder((8, 6, width), name="x")
    h, w = te.reduce_axis((0, 6), "h"), te.reduce_axis((0, width), "w")
    total = te.compute((8,), lambda i: te.sum(x[i, h, w], axis=[h, w]), name="total")
    result = te.compute(x.shape, lambda i, y, z: x[i, y, z] - total[i], name="result")
    data = np.random.default_rng(0).standard_normal((8, 6, width)).astype("float32")
    scheduled, got = run(te.create_prim_func([x, result]), data)
    np.testing.assert_allclose(got, data - data.sum((1, 2), keepdims=True), rtol=1e-4, atol=1e-4)
    assert isinstance(scheduled.body.block.body, tirx.For) == is_one


@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize(("dtype", "other"), [("uint8", "int8"), ("int8", "uint8"), ("bool", "int8")])
def test_products_of_bytes_that_are_one_vector_are_added_up_whole(dtype, other, steps):
    """Of the first four alone: LLVM makes VPDPBUSD of products whose halves are added, and forgets the other words
    (found by the program fuzzer)."""
    x, y = te.placeholder((1, 1, steps), dtype, "x"), te.placeholder((steps, 1), other, "y")
    z, k = te.placeholder((1, 1), "int32", "z"), te.reduce_axis((0, steps), "k")

    def element(b, i, j):
        return te.sum(x[b, i, k].astype("int32") * y[k, j].astype("int32"), axis=k)

    total = te.compute((1, 1, 1), element, "total")
    result = te.compute((1, 1, 1), lambda b, i, j: (total[b, i, j] - z[i, j]).astype("float32"), "result")
    func = schedule_primfunc(te.create_prim_func([x, y, z, result]), replace(AVX512, cores=1))
    kernel = build_scheduled(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), normalize_target())
    own, weights = np.arange(1, steps + 1).astype(dtype), np.arange(-3, steps - 3).astype(other)
    inputs = [own.reshape(1, 1, steps), weights.reshape(steps, 1), np.ones((1, 1), "int32")]
    got = tvm.runtime.tensor(np.zeros((1, 1, 1), "float32"))
    kernel["main"](*map(tvm.runtime.tensor, inputs), got)
    assert got.numpy().item() == own.astype("int32") @ weights.astype("int32") - 1
