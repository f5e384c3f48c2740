"""Reductions of rows and columns: softmax, norms, extremes and long sums, in vectors and in one loop."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cpu.scheduled_cases import CASES
from targets.machines import AVX2, AVX512, MACHINES, built, kernel_of, scheduled
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.tir.structural import substitute

nn, op = relax.op.nn, relax.op


ROWS = {
    "softmax": lambda emit, x: emit(nn.softmax(x)),
    "log softmax": lambda emit, x: emit(nn.log_softmax(x)),
    "softmax of scores": lambda emit, x: emit(op.multiply(emit(nn.softmax(emit(op.multiply(x, x)))), x)),
    "softmax of columns": lambda emit, x: emit(nn.softmax(x, axis=-2)),
    "norm": lambda emit, x: emit(
        op.divide(x, emit(op.sqrt(emit(op.sum(emit(op.multiply(x, x)), axis=[-1], keepdims=True)))))
    ),
    "centred rows turned": lambda emit, x: emit(
        op.permute_dims(emit(op.subtract(x, emit(op.mean(x, axis=[-1], keepdims=True)))), [0, 2, 1])
    ),
}


@given(
    name=st.sampled_from(list(ROWS)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 18), st.integers(1, 50) | st.sampled_from([64, 96, 128, 200])),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(40))
def test_rows_of_any_length(make_module, unscheduled, run, arrays, name, shape, machine):
    """All stages of a row together, where vectors divide it; in loops of their own elsewhere."""
    mod, (x,) = make_module(ROWS[name], shape), arrays(shape)
    got = run(built(scheduled(mod, machine)), x)
    np.testing.assert_allclose(got, unscheduled(legalize(mod), x), rtol=1e-4, atol=1e-4)


@given(
    shape=st.tuples(st.integers(1, 3), st.sampled_from([4, 8, 24]), st.integers(1, 17), st.integers(1, 17)),
    groups=st.sampled_from([1, 2, 4]),
    machine=st.sampled_from(MACHINES),
)
@settings(max_examples=tries(20))
def test_group_norms_of_any_size(make_module, unscheduled, run, arrays, shape, groups, machine):
    """Sums and sums of squares are found at once."""

    def body(emit, x, g, b):
        return emit(nn.group_norm(x, g, b, num_groups=groups, channel_axis=1, axes=[2, 3]))

    shapes = shape, shape[1:2], shape[1:2]
    mod, inputs = make_module(body, *shapes), arrays(*shapes)
    got = run(built(scheduled(mod, machine)), *inputs)
    # a group of few elements may have no variance to speak of: what is left is the error of the difference
    np.testing.assert_allclose(got, unscheduled(legalize(mod), *inputs), rtol=1e-3, atol=1e-3)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 40) | st.sampled_from([64, 128])),
    axis=st.integers(0, 2),
    least=st.booleans(),
    machine=st.sampled_from(MACHINES),
    seed=st.integers(0, 9),
)
@settings(max_examples=tries(20))
def test_the_first_of_equal_extremes_is_found(make_module, run, shape, axis, least, machine, seed):
    """In vectors too, whose lanes meet the elements in another order."""
    mod = make_module(lambda emit, x: emit((op.argmin if least else op.argmax)(x, axis=axis)), shape)
    x = np.random.default_rng(seed).integers(0, 3, shape).astype("float32")
    got = run(built(scheduled(mod, machine)), x)
    assert (got == (x.argmin if least else x.argmax)(axis)).all()


def test_two_sums_at_once_are_in_vectors(make_module):
    body, *_ = CASES["group norm"]
    text = scheduled(make_module(body, (1, 8, 56, 56), (8,), (8,)), AVX2).script()
    assert re.search(r"vectorized\(T.int64\(32\)\):\s+with T.sblock\(\"x0_red_temp_rf_update", text)


def test_the_largest_of_each_column_is_found_in_vectors(make_module):
    """Among the classes of a segmented image: they were gathered, and took twenty times as long."""
    text = scheduled(make_module(lambda emit, x: emit(op.argmax(x, axis=1)), (1, 21, 128, 128)), AVX2).script()
    assert re.search(r"vectorized\(T.int64\(16\)\):\s+with T.sblock\(\"\w*_temp_update", text)


@pytest.mark.parametrize(("columns", "is_whole"), [(17, True), (57, True), (18, False), (67, False)])
def test_columns_without_good_parts_are_one_vector(make_module, columns, is_whole):
    """They were taken one by one, or in threes: pooling 57 columns took twice as long. Products' tiles overlap."""
    text = scheduled(make_module(lambda emit, x: emit(op.sum(x, axis=0)), (40, columns)), AVX512).script()
    assert (f"T.vectorized(T.int64({columns}))" in text) == is_whole
    product = make_module(lambda emit, x, y: emit(op.matmul(x, y)), (40, 30), (30, columns))
    assert f"T.vectorized(T.int64({columns}))" not in scheduled(product, AVX512).script()


def test_largest_ones_of_several_vectors_wait_for_none(make_module):
    """There was one vector at a time, each step of which waited for the last: four times as long."""
    text = scheduled(make_module(lambda emit, x: emit(op.argmax(x, axis=0)), (512, 700)), AVX512).script()
    steps = r"T.unroll\(T.int64\(5\)\):\s+for \w+ in T.vectorized\(T.int64\(14\)\):\s+with T.sblock\(\"\w*_temp_update"
    assert re.search(steps, text)


@pytest.mark.parametrize(("cores", "tasks"), [(4, 4), (8, 8), (16, 16), (32, 16)])
def test_vectors_side_by_side_leave_every_core_some(make_module, cores, tasks):
    """Four of 16 vectors went side by side on 16 cores too, of which twelve had nothing to do."""
    mod = make_module(lambda emit, x: emit(op.argmax(x, axis=0)), (4096, 512))
    text = scheduled(mod, replace(AVX512, cores=cores)).script()
    assert re.findall(r"T.parallel\(T.int64\((\d+)\)\)", text) == [str(tasks)]


def test_sums_that_another_stage_reads_are_in_vectors(make_module):
    """Their tiles overlapped, what is written twice is read by no stage of TVM's, and no other family came after."""
    notes = Notes()
    body, _ = CASES["variance of columns that no vector divides"]
    schedule_module(fuse(legalize(make_module(body, (16, 64, 300))), notes), AVX512, notes)
    assert not [text for text in map(str, notes) if "without vectors" in text]


def test_columns_that_no_vector_divides_are_reduced_in_parts_of_vectors(make_module):
    """Exponentials had vectors that overlap, of which TVM does not see that they make all that is summed: the maxima
    and sums of 512 x 700 were taken element by element, twice as long."""
    notes = Notes()
    mod = fuse(legalize(make_module(ROWS["softmax of columns"], (512, 700))), notes)
    done = schedule_module(mod, AVX2, notes)
    assert not [text for text in map(str, notes) if "without vectors" in text]
    assert "T.vectorized(T.int64(4))" in kernel_of(done).script()


@pytest.mark.parametrize("name", ["softmax", "layer norm"])
def test_all_stages_of_a_row_are_one_loop(make_module, name):
    body, *_ = CASES[name]
    shapes = ((2, 24, 128), *[(128,)] * (2 * (name == "layer norm")))
    func = kernel_of(scheduled(make_module(body, *shapes), AVX2))
    text = func.script()
    assert text.count("T.parallel") == 1
    assert text.count('scope="local"') == text.count("sblock_alloc_buffer") > 4, "all but the result"


def test_rows_that_need_all_others_are_apart(make_module, run, arrays):
    """Every row is centred by the means of all rows: row by row each would find them again."""
    mod = make_module(lambda emit, x: emit(op.subtract(x, emit(op.mean(x, axis=[-1])))), (128, 128))
    done, (x,) = scheduled(mod, AVX2), arrays((128, 128))
    assert kernel_of(done).script().count("T.parallel") > 1
    np.testing.assert_allclose(run(built(done), x), x - x.mean(-1), atol=1e-5)


def test_rows_longer_than_the_cache_are_apart(make_module):
    mod = make_module(CASES["softmax"][0], (4, 1 << 17))
    assert scheduled(mod, AVX2).script().count("T.parallel") > 1


def test_partial_sums_are_in_vectors_along_memory(make_module):
    """They were along the rows, where rfactor puts the axis of partial sums before these."""
    func = kernel_of(scheduled(make_module(lambda emit, x: emit(op.sum(x, axis=[-1])), (64, 256)), AVX2))
    found: list[int | None] = []

    def on_loop(loop):
        def on_load(load):
            if load.source.same_as(func.params[0]):
                found.append(StageAccess(load.source, tuple(load.indices)).stride(loop.loop_var))

        if loop.kind == tirx.ForKind.VECTORIZED:
            block = loop.body.block
            values = dict(zip((axis.var for axis in block.iter_vars), loop.body.iter_values, strict=True))
            tvm_ffi.structural_walk(substitute(block.body, values), (tvm.ir.TensorLoad, on_load))

    tvm_ffi.structural_walk(func.body, (tirx.For, on_loop))
    assert found == [1]


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("rows", [8, 13])
@pytest.mark.parametrize("epilogue", [False, True])
def test_a_long_reduction_is_done_in_pieces(make_module, run, arrays, rows, epilogue, machine):
    """Where a panel of one operand overflows the L2, its pieces are added up."""

    def body(emit, x, w, b):
        y = emit(op.matmul(x, w))
        return emit(nn.relu(emit(op.add(y, b)))) if epilogue else emit(op.add(y, b))

    shapes = (rows, 9000), (9000, 256), (256,)
    mod = scheduled(make_module(body, *shapes), machine)
    assert "_rf" in mod.script()
    x, w, b = (a.astype("float32") / 10 for a in arrays(*shapes))
    wanted = x.astype("float64") @ w + b
    got = run(built(mod), x, w, b)
    np.testing.assert_allclose(got, np.maximum(wanted, 0) if epilogue else wanted, atol=1e-3)


def test_a_reduction_whose_panels_fit_is_done_at_once(make_module):
    mod = make_module(lambda emit, x, w: emit(op.matmul(x, w)), (8, 1000), (1000, 64))
    assert "_rf" not in scheduled(mod, AVX2).script()
