"""Schedules keep numbers: every family against the unscheduled build, for machines of several kinds."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
import tvm_ffi
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cpu.scheduled_cases import CASES, conv_relu_residual
from targets.machines import AVX2, AVX512, MACHINES, built, kernel_of, scheduled
from tvm import relax, te, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.schedule import schedule_module, schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

ZERO = tirx.const(0.0, "float32")

nn, op = relax.op.nn, relax.op


@pytest.mark.parametrize("name", CASES)
def test_schedules_keep_the_numbers(make_module, unscheduled, run, arrays, name):
    body, *shapes = CASES[name]
    mod = make_module(body, *shapes)
    inputs = arrays(*shapes)
    expected = unscheduled(legalize(mod), *inputs)
    for machine in MACHINES:
        got = run(built(scheduled(mod, machine)), *inputs)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=str(machine))


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("sum over channels", ['scope="local"', "T.vectorized(T.int64(8))"]),
        ("relu of odd size", ["T.min(", "T.vectorized(T.int64(8))"]),  # the last vector overlaps the one before
        ("concat of channels last", ["T.vectorized(T.int64(16))"]),
        ("softmax", ['scope="local"', "T.vectorized(T.int64(8))"]),
        ("matmul with bias", ['scope="local"', "T.vectorized(T.int64(8))", "T.unroll"]),
        ("matmul of prime sizes", ['scope="local"', "T.min(", "T.vectorized(T.int64(8))"]),
        ("conv packed with epilogue", ['scope="local"', "T.vectorized(T.int64(8))", "T.parallel", "T.unroll"]),
        ("conv depthwise packed", ['scope="local"', "T.vectorized(T.int64(8))"]),
        ("max pool packed", ['scope="local"', "T.vectorized(T.int64(8))"]),
        ("conv NHWC", ['scope="local"', "T.vectorized(T.int64(8))", "T.parallel"]),
    ],
)
def test_a_family_leaves_its_marks(make_module, name, marks):
    body, *shapes = CASES[name]
    text = scheduled(make_module(body, *shapes), AVX2).script()
    assert "tirx.is_scheduled" in text
    for mark in marks:
        assert mark in text, mark


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 70),
    depth=st.integers(1, 70),
    transposed=st.booleans(),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(25))
def test_matmul_of_any_size(make_module, run, arrays, rows, columns, depth, transposed, machine):
    def body(emit, x, y):
        return emit(nn.relu(emit(op.matmul(x, emit(op.permute_dims(y)) if transposed else y))))

    shapes = (rows, depth), (columns, depth) if transposed else (depth, columns)
    x, y = arrays(*shapes)
    got = run(built(scheduled(make_module(body, *shapes), machine)), x, y)
    np.testing.assert_allclose(got, np.maximum(x @ (y.T if transposed else y), 0), atol=1e-3)


@given(
    size=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    batch=st.integers(1, 2),
    window=st.sampled_from([1, 2, 3]),
    stride=st.sampled_from([1, 2]),
    layout=st.sampled_from(["NCHW16c", "NCHW8c", "NHWC"]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(30))
def test_convolutions_of_any_size(make_module, unscheduled, run, arrays, size, batch, window, stride, layout, machine):
    """Tiles run over height and width at once, and the last one overlaps."""
    block = {"NCHW16c": 16, "NCHW8c": 8, "NHWC": 0}[layout]
    height, width = ((s - 1) * stride + window for s in size)
    kernel = f"OIHW{block}i{block}o" if block else "HWIO"

    def body(emit, x, w, r):
        y = emit(nn.conv2d(x, w, strides=stride, data_layout=layout, kernel_layout=kernel))
        return emit(nn.relu(emit(op.add(y, r))))

    if block:
        shapes = (batch, 2, height, width, block), (2, 2, window, window, block, block), (batch, 2, *size, block)
    else:
        shapes = (batch, height, width, 12), (window, window, 12, 16), (batch, *size, 16)
    mod, inputs = make_module(body, *shapes), arrays(*shapes)
    got = run(built(scheduled(mod, machine)), *inputs)
    np.testing.assert_allclose(got, unscheduled(legalize(mod), *inputs), atol=1e-3)


COMPARISONS = {
    tirx.LT: lambda a, b: a < b,
    tirx.LE: lambda a, b: a <= b,
    tirx.GT: lambda a, b: a > b,
    tirx.GE: lambda a, b: a >= b,
}


@given(
    kind=st.sampled_from(list(COMPARISONS)),
    offset=st.integers(-40, 40),
    number=st.integers(-40, 100),
    turned=st.booleans(),
)
@settings(max_examples=tries(60), deadline=None)
def test_conditions_hold_for_blocks(kind, offset, number, turned):
    """All elements of a block of ``branch_block`` take the same branch."""
    extent = 64

    def sides(value):
        return (number, value + offset) if turned else (value + offset, number)

    def element(i):
        left, right = (tirx.const(s, i.ty.dtype) if isinstance(s, int) else s for s in sides(i))
        return tirx.if_then_else(kind(left, right), x[i], ZERO)

    x = te.placeholder((extent,), name="x")
    func = te.create_prim_func([x, te.compute((extent,), element, name="y")], index_dtype_override="int64")
    (stage,) = stages_of(new_schedule(func))
    block = stage.branch_block(stage.axes[0].var) if stage.conditions else extent
    taken = [COMPARISONS[kind](*sides(i)) for i in range(extent)]
    changes = [i for i in range(1, extent) if taken[i] != taken[i - 1]]
    if changes:
        assert [block] == changes
    for start in range(0, extent, block or extent):
        assert len(set(taken[start : start + (block or extent)])) == 1


def test_a_tile_of_seven_by_seven_pixels_overlaps(make_module):
    lanes, channels = 8, 32  # blocks of them: in short reductions the addresses of such tiles cost too much
    shapes = (1, channels, 7, 7, lanes), (4, channels, 3, 3, lanes, lanes), (1, 4, 1, 1, lanes), (1, 4, 7, 7, lanes)
    text = scheduled(make_module(conv_relu_residual, *shapes), AVX2).script()
    assert "T.min(v_t * T.int64(" in text or "T.min(t * T.int64(" in text


def test_a_product_that_no_tile_divides_is_cut_along_rows_and_vectors(make_module, run, arrays):
    """Attention over 197 tokens: single rows times strips of 8 lanes moved every line of memory twice."""
    body, shapes = lambda emit, q, k: emit(op.matmul(q, k)), ((2, 197, 64), (2, 64, 197))
    mod = scheduled(make_module(body, *shapes), AVX2)
    tiles = {int(extent) for extent in re.findall(r"min\(\w+ \* T.int64\((\d+)\)", mod.script())}
    assert {3, 32} <= tiles or {6, 16} <= tiles
    q, k = arrays(*shapes)
    np.testing.assert_allclose(run(built(mod), q, k), q @ k, atol=1e-3)


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("block", [4, 8, 16])
@pytest.mark.parametrize("channels_last", [True, False])
def test_an_epilogue_that_unpacks(make_module, run, arrays, block, channels_last, machine):
    def unpacked(x, w):
        k = te.reduce_axis((0, 24), "k")
        tiles = te.compute((6, 48 // block, block), lambda m, c, i: te.sum(x[m, k] * w[c, k, i], axis=k), name="tiles")
        if channels_last:
            return te.compute((6, 48), lambda m, n: te.max(tiles[m, n // block, n % block], ZERO), name="unpack")
        return te.compute((48, 6), lambda n, m: te.max(tiles[m, n // block, n % block], ZERO), name="unpack")

    builder = relax.BlockBuilder()
    shapes = (6, 24), (48 // block, 24, block)
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(builder.call_te(unpacked, *params))
        builder.emit_func_output(output)
    mod = scheduled(builder.get(), machine)
    assert 'scope="local"' in mod.script()
    assert mod.script().count("sblock_alloc_buffer") == 1
    x, w = arrays(*shapes)
    expected = np.maximum(x @ w.transpose(1, 0, 2).reshape(24, 48), 0)
    got = run(built(mod), x, w)
    np.testing.assert_allclose(got, expected if channels_last else expected.T, atol=1e-4)


@pytest.mark.parametrize("reads", ["mirrored", "diagonal"])
def test_an_epilogue_that_mixes_elements(make_module, run, arrays, reads):
    def mixed(x, w):
        k = te.reduce_axis((0, 24), "k")
        sums = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="sums")
        if reads == "diagonal":
            return te.compute((16, 16), lambda i, j: sums[i, i] + sums[i, j], name="mixed")
        return te.compute((16, 16), lambda i, j: sums[i, j] + sums[15 - i, 15 - j], name="mixed")

    builder = relax.BlockBuilder()
    shapes = (16, 24), (24, 16)
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(builder.call_te(mixed, *params))
        builder.emit_func_output(output)
    x, w = arrays(*shapes)
    product = x @ w
    expected = product + (np.diag(product)[:, None] if reads == "diagonal" else product[::-1, ::-1])
    got = run(built(scheduled(builder.get(), AVX2)), x, w)
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_padding_of_a_packed_convolution_is_not_inlined(make_module):
    body, *shapes = CASES["conv packed"]
    text = scheduled(make_module(body, *shapes), AVX2).script()
    assert 'T.sblock("pad_temp")' in text


def test_padding_of_groups_of_channels_is_not_inlined():
    """Channels last, in groups of a vector: the border was asked for in every step (36 GMAC/s instead of 12)."""
    size, groups, lanes = 8, 5, 8
    data = te.placeholder((1, size, size, groups * lanes), name="data")
    weights = te.placeholder((groups, 3, 3, lanes, lanes), name="weights")

    def bordered(n, y, x, c):
        inside = tirx.all(y >= 1, y < size + 1, x >= 1, x < size + 1)
        return tirx.if_then_else(inside, data[n, y - 1, x - 1, c], tirx.const(0, "float32"))

    padded = te.compute((1, size + 2, size + 2, groups * lanes), bordered, "padded")
    member, dy, dx = (te.reduce_axis((0, extent), name) for name, extent in (("m", lanes), ("dy", 3), ("dx", 3)))

    def summed(n, y, x, c):
        element = padded[n, y + dy, x + dx, c // lanes * lanes + member]
        return te.sum(element * weights[c // lanes, dy, dx, member, c % lanes], axis=[member, dy, dx])

    func = te.create_prim_func([data, weights, te.compute((1, size, size, groups * lanes), summed, "sums")])
    assert 'T.sblock("padded")' in schedule_primfunc(func, AVX2).script()


def test_a_scheduled_function_is_left_alone(make_module):
    mod = fuse(legalize(make_module(lambda emit, x: emit(nn.relu(x)), (64, 64))), Notes())
    function = kernel_of(mod)
    marked = function.with_attr("tirx.is_scheduled", True)
    name = next(g for g, f in mod.functions.items() if isinstance(f, tirx.PrimFunc))
    mod = tvm.IRModule({**dict(mod.functions.items()), name: marked})
    assert schedule_module(mod, AVX2)[name].same_as(marked)
    assert "T.vectorized" in schedule_primfunc(function, AVX2).script()


def test_an_opaque_body_comes_back_unchanged():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def opaque(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            b[i] = a[7 - i]

    assert tvm_ffi.structural_equal(schedule_primfunc(opaque, AVX2).body, opaque.body)


@pytest.mark.parametrize("shape", [(1, 64, 56, 56), (1, 32, 28, 28), (64, 7, 7), (12, 197, 197), (40, 3, 20), (3, 5)])
def test_elementwise_code_reads_memory_in_one_piece(make_module, unscheduled, run, arrays, shape):
    """Vectors of 32 elements over axes of 56 were put together from single ones: 4 times as long as memory takes."""
    mod = make_module(lambda emit, x, y: emit(op.add(x, y)), shape, shape)
    built = build_scheduled(scheduled(mod, AVX2), normalize_target())
    sources = [part.inspect_source("ll") for part in (built.mod, *built.mod.imports) if part.kind == "llvm"]
    assert any("fadd" in source for source in sources)
    assert not any("insertelement" in source for source in sources)
    inputs = arrays(shape, shape)
    got = run(built, *inputs)
    np.testing.assert_allclose(got, inputs[0] + inputs[1], rtol=1e-6)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), rtol=1e-6)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    order=st.permutations(range(4)),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(25))
def test_transposes_of_any_order(make_module, run, arrays, shape, order, machine):
    mod = make_module(lambda emit, x: emit(op.permute_dims(x, order)), shape)
    (x,) = arrays(shape)
    got = run(built(scheduled(mod, machine)), x)
    np.testing.assert_array_equal(got, x.transpose(order))


def test_a_transpose_uses_lines_of_memory_whole(make_module):
    """A row of what is written takes an element of a line each: 16 of them, then the next row, share a line."""
    mod = make_module(lambda emit, x: emit(op.permute_dims(x, [1, 2, 0])), (197, 8, 3))
    text = kernel_of(scheduled(mod, AVX2)).script()
    assert "T.grid(T.int64(3), T.int64(16))" in text, "so many elements of a row, then the next row"


def test_tiles_that_overlap_keep_blocks_of_weights_whole():
    """112 channels in tiles of 64, the last from 48 on: weights in blocks of 16 were read element by element."""
    channels, depth, block = 112, 672, 16
    data = te.placeholder((1, 14, 14, depth), name="data")
    weights = te.placeholder((channels // block, depth, 1, 1, block), name="weights")
    c = te.reduce_axis((0, depth), name="c")
    result = te.compute(
        (1, 14, 14, channels),
        lambda n, h, w, o: te.sum(data[n, h, w, c] * weights[o // block, c, 0, 0, o % block], axis=c),
        name="conv",
    )
    func = te.create_prim_func([data, weights, result], index_dtype_override="int64")
    text = schedule_primfunc(func, AVX512).script()
    assert re.search(r"T\.min\(t_1 \* T\.int64\(4\), T\.int64\(3\)\) \* T\.int64\(16\)", text)
    lines = text.splitlines()
    update = next(number for number, line in enumerate(lines) if 'sblock("conv_update")' in line)
    assert "T.vectorized" in lines[update - 1]
