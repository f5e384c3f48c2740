"""Products of float32 matrices from parts of bfloat16, against double precision."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AMX, built
from tvm import relax, te, tirx

from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx import selection as split_products
from eqsat_layout.targets.cpu.amx.bfloat16_parts import PARTS, part
from eqsat_layout.targets.cpu.amx.selection import split_product
from eqsat_layout.targets.cpu.amx.tile_plan import TilePlan, plan_tiles
from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.schedule import schedule_module, schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.structural import nodes_of

needs_unit = pytest.mark.skipif(not matrix_unit.is_permitted(), reason="this machine has no matrix unit")


def function_of(emit, *shapes):
    """The fused PrimFunc of an expression."""
    builder = relax.BlockBuilder()
    given = [relax.Var(f"x{number}", relax.TensorType(shape, "float32")) for number, shape in enumerate(shapes)]
    with builder.function("main", given):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, *given))
        builder.emit_func_output(result)
    from eqsat_layout.graph.legalize import legalize

    module = fuse(legalize(builder.get()), Notes())
    (found,) = (f for f in module.functions.values() if isinstance(f, tirx.PrimFunc))
    return found


def run(func, arrays):
    """The result, all of it written."""
    shape = [int(extent) for extent in func.params[-1].shape]
    scheduled = schedule_module(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), machine_here())
    result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    built(scheduled)["main"](*map(tvm.runtime.tensor, arrays), result)
    return result.numpy()


def machine_here():
    return machine_of(normalize_target())


def matmul_of(rows, steps, columns):
    return function_of(lambda b, x, y: relax.op.matmul(x, y), (rows, steps), (steps, columns))


@pytest.fixture
def always(monkeypatch):
    """The unit is used wherever it can be."""
    monkeypatch.setattr(split_products, "_is_faster", lambda *_: True)
    return monkeypatch


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def assert_as_near_as_float32(got, data, weights, product):
    """Errors are within what one rounding of every term and of every sum to float32 may cost."""
    exact = product(data.astype("float64"), weights.astype("float64"))
    size = product(np.abs(data).astype("float64"), np.abs(weights).astype("float64"))
    assert np.isfinite(got).all()
    assert (np.abs(got - exact) <= 8 * 2.0**-24 * size).all()


def test_parts_add_up_to_the_number():
    x = np.concatenate([random(4096) * 10.0 ** np.linspace(-30, 30, 4096).astype("float32"), [0.0, -0.0, 1.0, 65535.0]])
    x = x.astype("float32")
    operand = te.placeholder(x.shape, name="x")

    def element(number, i):
        return choice(number, [part(operand[i] * tirx.const(1.0, "float32"), index) for index in range(PARTS)])

    result = te.compute((PARTS, *x.shape), element, name="y")
    func = te.create_prim_func([operand, result], index_dtype_override="int64")
    found = tvm.runtime.tensor(np.zeros((PARTS, *x.shape), "uint32"))
    tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"](tvm.runtime.tensor(x), found)
    bits = found.numpy()
    assert bits.max() < 1 << 16
    assert ((bits << 16).view("float32").astype("float64").sum(axis=0) == x).all()


def choice(number, values):
    first, *others = values
    return tirx.Select(number == PARTS - len(values), first, choice(number, others)) if others else first


@needs_unit
@settings(max_examples=tries(12), deadline=None)
@given(st.data())
def test_a_product_of_any_shape_is_right(data):
    batch, rows, columns, steps = (
        data.draw(st.integers(low, high)) for low, high in ((1, 3), (2, 150), (16, 120), (16, 200))
    )
    pieces = data.draw(st.sampled_from([1, 2, 3]))
    groups = data.draw(st.sampled_from([1, 2]))
    chunk = 16 * data.draw(st.integers(1, -(-rows // 16)))

    def plan(product, machine):
        found = plan_tiles(product, machine)
        blocks, panels = -(-product.steps.vectors // 2), -(-product.columns.vectors // 2)
        if blocks % pieces or panels % groups:
            return found
        return TilePlan(chunk, -(-rows // chunk), groups, pieces, 0.0)

    func = function_of(lambda b, x, y: relax.op.matmul(x, y), (batch, rows, steps), (batch, steps, columns))
    x, y = random(batch, rows, steps), random(batch, steps, columns, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_products, "_is_faster", lambda *_: True)
        patch.setattr(split_products, "plan_tiles", plan)
        assert split_product(func, machine_here()) is not None
        assert_as_near_as_float32(run(func, [x, y]), x, y, np.matmul)


def test_products_are_divided_by_a_number_as_products(always):
    """Results of the unit were divided in earnest since expanding functions leaves divisions alone."""

    def scores(builder, x, y):
        return relax.op.divide(builder.emit(relax.op.matmul(x, y)), relax.const(np.float32(6)))

    plain = function_of(scores, (64, 128), (128, 96))
    assert split_product(plain, AMX) is not None
    func = schedule_primfunc(plain, AMX)
    assert not nodes_of(func.body, tirx.Div)


@needs_unit
@pytest.mark.parametrize("columns", [32, 109])
def test_few_rows_in_pieces_leave_room_for_whole_tiles(always, columns):
    """TVM cut the buffer of sums to the rows that are read of it; tiles were stored beyond its end."""
    always.setattr(split_products, "plan_tiles", lambda *_: TilePlan(16, 1, 1, 2, 0.0))
    x, y = random(2, 128), random(128, columns, seed=1)
    assert_as_near_as_float32(run(matmul_of(2, 128, columns), [x, y]), x, y, np.matmul)


@needs_unit
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("window", "pad"), [(1, 0), (3, 1)])
def test_a_convolution_with_its_epilogue_is_right(always, stride, dilation, window, pad):
    def conv(builder, x, w, bias, other):
        layouts = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c"}
        y = relax.op.nn.conv2d(x, w, strides=stride, padding=pad, dilation=dilation, **layouts)
        y = builder.emit(relax.op.add(builder.emit(y), bias))
        return relax.op.nn.relu(builder.emit(relax.op.add(y, other)))

    size = 11
    out = (size + 2 * pad - dilation * (window - 1) - 1) // stride + 1
    shapes = (2, 3, size, size, 16), (5, 3, window, window, 16, 16), (1, 5, 1, 1, 16), (2, 5, out, out, 16)
    func = function_of(conv, *shapes)
    assert split_product(func, machine_here()) is not None
    arrays = [random(*shape, seed=number) for number, shape in enumerate(shapes)]
    got = run(func, arrays)
    plain = schedule_primfunc(func, dataclasses.replace(machine_here(), matrix_unit=False))
    expected = tvm.runtime.tensor(np.zeros(shapes[-1], "float32"))
    module = tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})
    built(module)["main"](*map(tvm.runtime.tensor, arrays), expected)
    np.testing.assert_allclose(got, expected.numpy(), rtol=0, atol=2e-4)


@needs_unit
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("block", [16, 32])
def test_windows_along_three_axes_are_read_from_an_image(always, pad, block):
    """Parts of floats are cut once, and not for each of 27 places of the window."""
    shapes = (2, 5, 6, 4, block * 2), (3, 3, 3, block * 2, 32)
    func = function_of(
        lambda b, x, w: relax.op.nn.conv3d(x, w, padding=pad, data_layout="NDHWC", kernel_layout="DHWIO"), *shapes
    )

    def plan(product, machine):
        found = plan_tiles(product, machine)
        return found if product.image is not None else dataclasses.replace(found, nanoseconds=math.inf)

    always.setattr(split_products, "plan_tiles", plan)
    split = split_product(func, machine_here())
    assert split is not None
    assert split.product.image is not None
    x, w = (random(*shape, seed=number) for number, shape in enumerate(shapes))
    padded = np.pad(x.astype("float64"), [(0, 0), (pad, pad), (pad, pad), (pad, pad), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), axis=(1, 2, 3))
    np.testing.assert_allclose(run(func, [x, w]), np.einsum("bdhwcijk,ijkco->bdhwo", windows, w), rtol=0, atol=2e-4)


@needs_unit
@pytest.mark.parametrize("number", [0, 1, 2], ids=["data", "weights", "result"])
def test_what_lies_in_a_larger_tensor(always, number):
    func = matmul_of(40, 64, 48)
    shape = [int(extent) for extent in func.params[number].shape]
    larger = tuple(extent + 16 for extent in shape)
    boxed = in_boxes(func, {number: Box(tuple(shape), larger, (0, 1), (16, 8))})
    arrays = [random(*map(int, param.shape), seed=seed) for seed, param in enumerate(boxed.params[:2])]
    result = run(boxed, arrays)
    x, y, got = (
        whole[16 : 16 + extents[0], 8 : 8 + extents[1]] if which == number else whole
        for which, (whole, extents) in enumerate(zip((*arrays, result), ((40, 64), (64, 48), (40, 48)), strict=True))
    )
    assert_as_near_as_float32(got, x, y, np.matmul)


@needs_unit
def test_an_epilogue_with_functions_is_right(always):
    shapes = (40, 64), (64, 48), (48,)
    func = function_of(
        lambda b, x, y, z: relax.op.nn.gelu(b.emit(relax.op.add(b.emit(relax.op.matmul(x, y)), z))), *shapes
    )
    assert split_product(func, machine_here()) is not None
    arrays = [random(*shape, seed=number) for number, shape in enumerate(shapes)]
    sums = (arrays[0].astype("float64") @ arrays[1] + arrays[2]) / np.sqrt(2)
    from math import erf

    expected = np.vectorize(lambda x: x / np.sqrt(2) * (1 + erf(x)))(sums)
    np.testing.assert_allclose(run(func, arrays), expected, rtol=0, atol=2e-5)


def test_the_unit_is_for_products_that_are_large_enough():
    assert split_product(matmul_of(1024, 768, 768), AMX) is not None
    assert split_product(matmul_of(1, 768, 768), AMX) is None
    assert split_product(matmul_of(16, 32, 32), AMX) is None
    assert split_product(matmul_of(1024, 768, 8), AMX) is None
    assert split_product(matmul_of(1024, 768, 768), dataclasses.replace(AMX, matrix_unit=False)) is None


def test_what_is_no_product_of_matrices_is_left_alone():
    pooled = function_of(lambda b, x: relax.op.nn.max_pool2d(x, pool_size=2), (1, 16, 64, 64))
    total = function_of(lambda b, x: relax.op.sum(x, axis=1), (512, 512))
    depthwise = function_of(
        lambda b, x, w: relax.op.nn.conv2d(x, w, padding=1, groups=64, data_layout="NHWC", kernel_layout="HWOI"),
        (8, 32, 32, 64),
        (3, 3, 64, 1),
    )
    assert [split_product(func, AMX) for func in (pooled, total, depthwise)] == [None] * 3


def test_values_that_are_read_twice_do_not_double_without_end():
    """The gamma function of torch, whose parts read each other, took 10 GB on machines with the unit."""

    def doubled(builder, x):
        for _ in range(60):
            x = builder.emit(relax.op.add(builder.emit(relax.op.multiply(x, x)), x))
        return relax.op.negative(x)

    assert split_product(function_of(doubled, (4, 16)), AMX) is None


@pytest.mark.parametrize("shape", [(1, 1576, 768, 3072), (1, 49, 512, 4608), (36, 128, 256, 256), (1, 25088, 64, 64)])
def test_a_plan_covers_all_and_fits_the_cache(shape):
    batch, rows, columns, steps = shape
    func = function_of(lambda b, x, y: relax.op.matmul(x, y), (batch, rows, steps), (batch, steps, columns))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_products, "_is_faster", lambda *_: True)
        found = split_product(func, AMX)
    assert found is not None
    plan = found.plan
    assert (plan.chunks - 1) * plan.rows < rows <= plan.chunks * plan.rows
    assert columns // 32 % plan.groups == 0
    assert steps // 32 % plan.pieces == 0
    assert plan.rows * (steps // plan.pieces) * 6 <= 1 << 20


def test_a_machine_without_permission_has_no_unit(monkeypatch):
    monkeypatch.setattr("eqsat_layout.targets.cpu.target.is_permitted", lambda: False)
    assert not machine_here().matrix_unit
    assert not machine_of(normalize_target({"kind": "llvm", "mcpu": "sapphirerapids"})).matrix_unit


@needs_unit
def test_exact_targets_have_no_unit():
    assert machine_here().matrix_unit
    assert not machine_of(normalize_target(approx=False)).matrix_unit
    assert not machine_of(normalize_target(normalize_target(), approx=False)).matrix_unit
    assert machine_of(normalize_target(normalize_target())).matrix_unit


def test_other_machines_are_asked_for_nothing_of_this_one():
    assert not machine_of(normalize_target({"kind": "llvm", "mcpu": "skylake-avx512"})).matrix_unit
    given = {"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-tile", "+amx-bf16"]}
    assert machine_of(normalize_target(given)).matrix_unit
