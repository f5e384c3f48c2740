"""While the tiles of one panel compute, every line of the next one is prefetched, and none beyond the operand.

While one tile computes, the rows of the next one are prefetched.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tvm
import tvm_ffi
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, with_small_caches
from tvm import te, tirx

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.machine import PRESETS
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.rewrite import substitute

SMALL_CACHES, WIDE = with_small_caches(AVX2), with_small_caches(AVX512)
LINE = 16  # floats


def product(rows, steps, panels, lanes=16, *, packed=True, machine=SMALL_CACHES):
    """Rows times weights in panels of ``lanes`` columns, each in one piece or not."""
    data = te.placeholder((rows, steps), name="data")
    shape = (panels, steps, lanes) if packed else (steps, panels, lanes)
    weights = te.placeholder(shape, name="weights")
    k = te.reduce_axis((0, steps), "k")

    def element(o, n, i):
        return te.sum(data[n, k] * (weights[o, k, i] if packed else weights[k, o, i]), axis=k)

    result = te.compute((panels, rows, lanes), element, name="product")
    function = te.create_prim_func([data, weights, result], index_dtype_override="int64")
    return schedule_primfunc(function, machine)


def matmul(rows, steps, panels):
    """The same with columns that are one axis of the result."""
    data, weights = te.placeholder((rows, steps), name="data"), te.placeholder((panels, steps, 16), name="weights")
    k = te.reduce_axis((0, steps), "k")
    result = te.compute((rows, panels * 16), lambda n, j: te.sum(data[n, k] * weights[j // 16, k, j % 16], axis=k))
    function = te.create_prim_func([data, weights, result], index_dtype_override="int64")
    return schedule_primfunc(function, WIDE)


def leaves(node, loops=()):
    """Every statement that holds no others, or the block that holds just a store: with the loops around it."""
    if isinstance(node, tirx.For):
        yield from leaves(node.body, (*loops, node))
    elif isinstance(node, tirx.SeqStmt):
        for statement in node.seq:
            yield from leaves(statement, loops)
    elif isinstance(node, tvm.s_tir.SBlockRealize) and not isinstance(node.block.body, tirx.BufferStore):
        yield from leaves(node.block.body, loops)
    else:
        yield node, list(loops)


def loads_of(node, name):
    """What a statement reads of an operand."""
    found = []
    tvm_ffi.structural_walk(node, (tvm.ir.TensorLoad, found.append))
    return [load for load in found if str(load.source.name) == name]


def prefetches(function, name="weights"):
    """(indices, loops around them) of all prefetches of an operand."""
    return [
        (list(load.indices), loops)
        for node, loops in leaves(function.body)
        if isinstance(node, tirx.Evaluate) and "prefetch" in str(node.value)
        for load in loads_of(node, name)[:1]
    ]


def addresses(function, shape, count, name="weights"):
    """By panel (or tile) in use, that is by the loop of ``count`` iterations: where prefetched lines start."""
    analyzer = tvm.sym.Analyzer()
    lines = {}
    for indices, loops in prefetches(function, name):
        for values in itertools.product(*(range(int(loop.extent)) for loop in loops)):
            at = {loop.loop_var: tirx.IntImm("int64", v) for loop, v in zip(loops, values, strict=True)}
            place = [int(analyzer.simplify(substitute(index, at))) for index in indices]
            flat = sum(p * math.prod(shape[n + 1 :]) for n, p in enumerate(place))
            in_use = next(v for loop, v in zip(loops, values, strict=True) if int(loop.extent) == count)
            lines.setdefault(in_use, set()).add(flat)
    return lines


@pytest.mark.parametrize(("rows", "steps", "panels"), [(9, 32, 11), (8, 48, 13), (10, 60, 29), (12, 40, 17)])
def test_the_next_panel_is_prefetched_whole(rows, steps, panels):
    function = product(rows, steps, panels)
    size = steps * 16
    for panel, found in addresses(function, (panels, steps, 16), panels).items():
        following = min(panel + 1, panels - 1) * size
        assert found == set(range(following, following + size, LINE))
    assert prefetches(function)


def test_panels_are_prefetched_where_the_last_tile_begins_in_the_one_before():
    """Of 32 blocks tiles take three: Winograd products whose weights come from memory took twice as long."""
    groups, blocks, steps, lanes = (6, 6), 32, 8, 16
    data = te.placeholder((*groups, 1, steps, 4, 4, lanes), name="data")
    weights = te.placeholder((*groups, blocks, steps, lanes, lanes), name="weights")
    c, k = te.reduce_axis((0, steps), "c"), te.reduce_axis((0, lanes), "k")

    def element(r, s, n, o, y, x, i):
        return te.sum(data[r, s, n, c, y, x, k] * weights[r, s, o, c, k, i], axis=[c, k])

    result = te.compute((*groups, 1, blocks, 4, 4, lanes), element, name="product")
    plain = te.create_prim_func([data, weights, result], index_dtype_override="int64")
    function = schedule_primfunc(plain, PRESETS["avx512 of zen 5"])
    overlapping = [loop for _, loops in leaves(function.body) for loop in loops if int(loop.extent) == 11]
    assert overlapping
    assert prefetches(function)


class Numbers:
    """What the text of an index means."""

    int64 = staticmethod(int)
    min, max = staticmethod(min), staticmethod(max)
    Add, Mul = staticmethod(operator.add), staticmethod(operator.mul)


def in_turns(found, steps, count):
    """The lines of weights at ``(indices, loops around)``: a list of those of each iteration of the first loops."""
    turns = [set() for _ in range(math.prod(int(loop.extent) for loop in found[0][1][:count]))]
    for (outer, step, inner), loops in found:
        names = [f"loop{number}" for number in range(len(loops))]  # the loops' own may be the same
        own = {loop.loop_var: tirx.Var(name, "int64") for loop, name in zip(loops, names, strict=True)}
        texts = [compile(str(substitute(index, own)), "index", "eval") for index in (outer, step, inner)]
        extents = [int(loop.extent) for loop in loops]
        for values in itertools.product(*map(range, extents)):
            at = {"T": Numbers, **dict(zip(names, values, strict=True))}
            panel, row, column = (eval(text, at) for text in texts)
            turn = 0
            for value, extent in zip(values[:count], extents[:count], strict=True):
                turn = turn * extent + value
            turns[turn].add(((panel * steps + row) * 16 + column) // LINE)
    return turns


def reads(function):
    """The same of all that tiles read of the weights."""
    found = []
    for node, loops in leaves(function.body):
        if isinstance(node, tvm.s_tir.SBlockRealize):
            values = dict(zip((axis.var for axis in node.block.iter_vars), node.iter_values, strict=True))
            for load in loads_of(node.block.body, "weights"):
                found.append(([substitute(index, values) for index in load.indices], loops))
    return found


@pytest.mark.parametrize(
    ("make", "rows", "steps", "panels", "count"),
    [
        pytest.param(matmul, 16, 16, 24, 1, id="columns are one axis"),
        pytest.param(matmul, 16, 136, 6, 2, id="panels in pieces"),
        pytest.param(partial(product, machine=WIDE), 16, 192, 6, 2, id="panels of blocks in pieces"),
    ],
)
def test_what_the_next_turn_reads_is_prefetched(make, rows, steps, panels, count):
    function = make(rows, steps, panels)
    read, prefetched = (in_turns(found, steps, count) for found in (reads(function), prefetches(function)))
    assert len(read) > 2
    assert prefetched[:-1] == read[1:]
    assert prefetched[-1] <= set().union(*read)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: product(400, 32, 9), id="many tiles share a panel"),
        pytest.param(lambda: product(4, 32, 9, packed=False), id="panels in pieces"),
        pytest.param(lambda: product(4, 16, 2), id="weights that stay in the cache"),
        pytest.param(lambda: product(4, 257, 9), id="panels that would fill the cache"),
        pytest.param(lambda: product(1, 64, 96), id="a row reads each panel once"),
    ],
)
def test_no_fetches_where_nothing_is_gained(function):
    assert not prefetches(function())


@pytest.mark.parametrize(("rows", "steps", "panels"), [(40, 128, 9), (36, 144, 8), (128, 64, 11)])
def test_rows_of_the_next_tile_are_prefetched(rows, steps, panels):
    """After the last tile of a panel comes the first one of the next panel, where one loop runs over both."""
    function = product(rows, steps, panels)
    found = prefetches(function, "data")
    size, tiles = len(found), int(found[0][1][-2].extent)
    assert rows % size == 0
    for tile, lines in addresses(function, (rows, steps), tiles, "data").items():
        first = min(tile + 1, tiles - 1) % (rows // size) * size
        starts = {place // LINE * LINE for place in lines}  # a step may need half a line
        assert starts == set(range(first * steps, (first + size) * steps, LINE))


@pytest.mark.parametrize(
    ("rows", "steps", "panels"),
    [
        pytest.param(100, 32, 400, id="they stay in the cache, and are read often"),
        pytest.param(24, 67, 9, id="they stay in the cache, and come in long pieces"),
        pytest.param(2000, 8, 9, id="they share lines"),
    ],
)
def test_no_rows_are_prefetched_where(rows, steps, panels):
    assert not prefetches(product(rows, steps, panels), "data")


def test_rows_that_come_in_long_pieces_from_beyond_l2_are_prefetched():
    """A pass over what fits L2 is the first one over it: Swin's products of 384 steps took 1.15 times as long."""
    function = product(192, 67, 9)
    assert prefetches(function, "data"), "51 KB, of which no more than 16 are in L2"


def test_rows_of_short_steps_are_prefetched_in_turns():
    """13 rows of 4 steps each: as many prefetches as rows in every step would take longer than they save."""
    rows, steps, size = 104, 32, 13
    function = product(rows, steps, 2, machine=replace(WIDE, l1_way_bytes=4096, l1_working_set=32768))
    assert 0 < len(prefetches(function, "data")) < size
    tiles = rows // size
    for tile, lines in addresses(function, (rows, steps), tiles, "data").items():
        first = min(tile + 1, tiles - 1) * size * steps
        assert {place // LINE * LINE for place in lines} == set(range(first, first + size * steps, LINE))


def test_rows_that_another_core_has_made_are_prefetched():
    """They would stay in the cache, but each core reads them only once or twice."""
    assert prefetches(product(100, 32, 9), "data")


def test_rows_that_are_looked_up_are_left_alone():
    """Which rows the next tile reads is not known; the function keeps its schedule."""
    data, weights = te.placeholder((4000, 32), name="data"), te.placeholder((9, 32, 16), name="weights")
    numbers = te.placeholder((400,), dtype="int64", name="numbers")
    k = te.reduce_axis((0, 32), "k")
    result = te.compute((9, 400, 16), lambda o, n, i: te.sum(data[numbers[n], k] * weights[o, k, i], axis=k))
    function = te.create_prim_func([data, weights, numbers, result], index_dtype_override="int64")
    scheduled = schedule_primfunc(function, SMALL_CACHES)
    assert "T.vectorized" in str(scheduled)
    assert not prefetches(scheduled, "data")


@settings(max_examples=tries(15), deadline=None)
@given(st.integers(1, 12) | st.sampled_from([97, 400]), st.integers(1, 70), st.integers(1, 12))
def test_results_are_those_without(rows, steps, panels):
    rng = np.random.default_rng(0)
    data, weights = (rng.standard_normal(shape).astype("float32") for shape in ((rows, steps), (panels, steps, 16)))
    built = build_scheduled(
        tvm.IRModule({"main": product(rows, steps, panels).with_attr("global_symbol", "main")}), normalize_target()
    )
    result = tvm.runtime.tensor(np.zeros((panels, rows, 16), "float32"))
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weights), result)
    np.testing.assert_allclose(result.numpy(), np.einsum("nk,oki->oni", data, weights), rtol=1e-4, atol=1e-4)


def test_an_operand_without_axes_is_not_prefetched():
    """Vision transformers compare with a scalar of theirs in a reduction: that was a fault, and no schedule."""
    data, weights = te.placeholder((64, 512), name="data"), te.placeholder((512, 64), name="weights")
    scalar = te.placeholder((), name="scalar")
    k = te.reduce_axis((0, 512), "k")
    result = te.compute((64, 64), lambda n, j: te.sum(data[n, k] * weights[k, j] * scalar(), axis=k))
    function = te.create_prim_func([data, weights, scalar, result], index_dtype_override="int64")
    assert schedule_primfunc(function, WIDE).attrs["tirx.is_scheduled"]


def test_sizes_known_at_run_time_only_are_no_zeros():
    """A batch of unknown size, fused with blocks of channels, divided by zero: the kernel ran unscheduled."""
    batch, c, i = tirx.Var("batch", "int64"), te.reduce_axis((0, 32), "c"), te.reduce_axis((0, 16), "i")
    data = te.placeholder((batch, 32, 28, 28, 16), name="data")
    weights = te.placeholder((8, 32, 1, 1, 16, 16), name="weights")
    result = te.compute(
        (batch, 8, 28, 28, 16),
        lambda n, o, h, w, k: te.sum(data[n, c, h, w, i] * weights[o, c, 0, 0, i, k], axis=[c, i]),
    )
    function = te.create_prim_func([data, weights, result], index_dtype_override="int64")
    scheduled = schedule_primfunc(function, AVX512)
    assert any(loop.kind == tirx.ForKind.VECTORIZED for _, loops in leaves(scheduled.body) for loop in loops)
