"""Attention is one kernel: scores of a few queries at a time, their softmax and its product with the values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from effort import IS_LONG
from programs import program
from targets.machines import AVX2, AVX512, HALVES, NEON, built
from tvm import relax, s_tir, te, tirx, topi

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.model.chain_model import ChainModel, FusedTiles
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.schedules.inlining import inline_producers
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

op = relax.op

HEADS, KEYS, LONG, SIZE = 6, 128, 256, 32
Emit = Callable[[Any], Any]
Between = Callable[..., Any]


def scaled(emit: Emit, scores: Any) -> Any:
    return emit(op.multiply(scores, relax.const(0.25, "float32")))


def weights(emit: Emit, scores: Any) -> Any:
    return emit(op.nn.softmax(scores, -1))


def plain(emit: Emit, scores: Any) -> Any:
    return weights(emit, scaled(emit, scores))


def masked(emit: Emit, scores: Any, mask: Any) -> Any:
    return weights(emit, emit(op.add(scaled(emit, scores), mask)))


def causal(emit: Emit, scores: Any) -> Any:
    keys = int(scores.ty.shape[-1])
    places = np.arange(keys, dtype="int32")
    is_later = emit(op.greater(relax.const(places), relax.const(places[:, None])))
    return weights(emit, emit(op.where(is_later, relax.const(-np.inf, "float32"), scores)))


def through(*shape: int) -> Between:
    """The softmax of scores of another shape."""

    def between(emit: Emit, scores: Any) -> Any:
        seen = emit(op.reshape(scaled(emit, scores), shape))
        return emit(op.reshape(weights(emit, seen), scores.ty.shape))

    return between


def attention(between: Between, *shapes: tuple[int, ...]) -> Any:
    """Of queries, keys as columns and values; further operands are ``between``'s."""

    def body(builder: Any, q: Any, k: Any, v: Any, *more: Any) -> Any:
        made = between(builder.emit, builder.emit(op.matmul(q, k)), *more)
        return builder.emit(op.matmul(made, v))

    return fuse(legalize(program(body, *shapes)), Notes())


def shapes_of(*batch: int, keys: int = KEYS) -> list[tuple[int, ...]]:
    return [(*batch, keys, SIZE), (*batch, SIZE, keys), (*batch, keys, SIZE)]


def kernels(mod: Any) -> int:
    return sum("call_tir" in str(b) for block in mod["main"].body.blocks for b in block.bindings)


CASES: dict[str, tuple[Between, list[tuple[int, ...]]]] = {
    "plain": (plain, shapes_of(HEADS)),
    "an axis of one batch": (plain, shapes_of(1, HEADS)),
    "a mask": (masked, [*shapes_of(2, HEADS), (2, 1, 1, KEYS)]),
    "later keys are not seen": (causal, shapes_of(HEADS)),
    "softmax without the batch": (through(HEADS, KEYS, KEYS), shapes_of(1, HEADS)),
    "softmax with a batch": (through(1, HEADS, KEYS, KEYS), shapes_of(HEADS)),
    "one axis of batch and heads": (through(2, HEADS // 2, KEYS, KEYS), shapes_of(HEADS)),
    "softmax of all rows": (through(HEADS * KEYS, KEYS), shapes_of(HEADS)),
    "one head": (plain, shapes_of(1, 1, keys=4 * KEYS)),
    "half a vector at the end": (plain, shapes_of(HEADS, keys=KEYS + 8)),
    "neither tiles nor vectors": (plain, shapes_of(HEADS, keys=LONG + 1)),
    "no vectors, a mask": (masked, [*shapes_of(2, HEADS, keys=LONG - 5), (2, 1, 1, LONG - 5)]),
    "no vectors, later keys are not seen": (causal, shapes_of(HEADS, keys=LONG + 1)),
    "no vectors, keys of other length": (plain, [(HEADS, 263, SIZE), (HEADS, SIZE, 251), (HEADS, 251, SIZE)]),
    "no tiles": (plain, [(HEADS, 263, SIZE), (HEADS, SIZE, LONG), (HEADS, LONG, SIZE)]),
}


AS_OTHERS = ["an axis of one batch", "softmax with a batch", "one axis of batch and heads"]
"""They are found otherwise, and their kernel is one of the others'."""


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_kernel_with_the_same_numbers(
    name: str, run: Callable[..., Any], unscheduled: Callable[..., Any], arrays: Callable[..., list[Any]]
) -> None:
    between, shapes = CASES[name]
    mod = attention(between, *shapes)
    assert kernels(mod) > 1
    joined = join_chains(mod, AVX512)
    assert kernels(joined) == 1
    if name in AS_OTHERS and not IS_LONG:
        return
    inputs = arrays(*shapes)
    got = run(built(schedule_module(joined, AVX512)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["later keys are not seen", "no vectors, later keys are not seen"])
@pytest.mark.parametrize("machine", [AVX2, NEON], ids=["avx2", "neon"])
def test_other_machines(
    machine: CpuMachine,
    name: str,
    run: Callable[..., Any],
    unscheduled: Callable[..., Any],
    arrays: Callable[..., list[Any]],
) -> None:
    between, shapes = CASES[name]
    mod = attention(between, *shapes)
    joined = join_chains(mod, machine)
    assert kernels(joined) == 1
    inputs = arrays(*shapes)
    got = run(built(schedule_module(joined, machine)), *inputs)
    np.testing.assert_allclose(got, unscheduled(mod, *inputs), rtol=1e-4, atol=1e-5)


def test_values_that_two_tiles_hold_are_added_once(
    run: Callable[..., Any], unscheduled: Callable[..., Any], arrays: Callable[..., list[Any]]
) -> None:
    """Tiles overlap: an infinite value times nothing would be NaN."""
    shapes = shapes_of(HEADS, keys=LONG + 1)
    mod = attention(plain, *shapes)
    queries, keys, values = arrays(*shapes)
    values[:, LONG - 2] = np.inf
    values[:, 3] = 0
    got = run(built(schedule_module(join_chains(mod, AVX512), AVX512)), queries, keys, values)
    assert np.isposinf(got).all()
    np.testing.assert_array_equal(got, unscheduled(mod, queries, keys, values))


def test_rows_whose_steps_are_in_order_stay_apart() -> None:
    """They would be summed up one by one."""
    machine = replace(AVX512, is_exact=True)
    assert kernels(join_chains(attention(plain, *shapes_of(HEADS, keys=KEYS)), machine)) > 1


def test_rows_that_no_vector_divides_are_whole_vectors_in_the_caches_too() -> None:
    """196 places had vectors of 14 for their products, and of 4 for their maxima: 375 us in place of 312 (Zen 4)."""
    joined = join_chains(attention(plain, *shapes_of(5, keys=196)), HALVES)
    assert kernels(joined) == 1
    text = schedule_module(joined, HALVES).script()
    assert "T.vectorized(T.int64(16))" in text
    assert not any(f"T.vectorized(T.int64({lanes}))" in text for lanes in (3, 7, 14))


def test_scores_are_never_in_memory() -> None:
    """What a kernel allocates is for a tile of them."""
    joined = join_chains(attention(plain, *shapes_of(HEADS, keys=4 * KEYS)), AVX512)
    text = joined.script()
    assert f"({4 * KEYS}, {4 * KEYS})" not in text
    assert "T.parallel" in text


def test_values_are_read_a_piece_at_a_time() -> None:
    """Each few rows read all values again, from L2: 1024 keys took 1.15 times as long."""
    schedules = {
        keys: str(schedule_module(join_chains(attention(plain, *shapes_of(HEADS, keys=keys)), AVX512), AVX512))
        for keys in (LONG, 4 * LONG)
    }
    assert ["matmul1_rf_init" in text for text in schedules.values()] == [False, True]


def test_all_rows_of_a_tile_use_a_panel_of_keys_before_the_next_one() -> None:
    """Scores that nobody else reads were made along memory, their keys read again for each few rows: 1024 keys took
    1.1 times as long (Zen 3)."""
    joined = join_chains(attention(plain, *shapes_of(HEADS, keys=4 * LONG)), AVX2)
    (kernel,) = (f for f in schedule_module(joined, AVX2).functions.values() if isinstance(f, tirx.PrimFunc))
    of_scores = next(loops for name, loops in updates(kernel.body) if name == "matmul_update")
    *_, panels, _, _ = (loop for loop in of_scores if loop.kind == tirx.ForKind.SERIAL and int(loop.extent) > 1)
    lanes = math.prod(int(loop.extent) for loop in of_scores if loop.kind == tirx.ForKind.VECTORIZED)
    assert 4 * LONG // int(panels.extent) <= 4 * lanes


@pytest.mark.parametrize(("heads", "keys", "size"), [(6, 2048, 64), (8, 4096, 40)])
def test_many_rows_share_keys_that_overflow_l2(heads: int, keys: int, size: int) -> None:
    """Scores had to fit L2, so that few rows read all keys and values again: 1.1 and 1.3 times as long (Zen 3)."""
    tiles = fastest_tiles(heads, keys, size, AVX2)
    count, columns = tiles.tile
    assert columns == size
    assert 32 <= count <= 64


def test_a_tile_holds_rows_of_one_head_whatever_its_size() -> None:
    """Heads of 40 elements, which no vector divides, were taken by fours with all rows: 2.4 times as long."""
    keys, size = 2048, 40
    count, columns = fastest_tiles(4, keys, size, AVX512).tile
    assert columns == size
    assert count * keys * 4 <= AVX512.l2_working_set


def fastest_tiles(heads: int, keys: int, size: int, machine: CpuMachine) -> FusedTiles:
    """Of attention whose result has the heads' elements side by side."""
    shapes = [(heads, keys, size), (heads, size, keys), (heads, keys, size)]
    q, k, v = (te.placeholder(shape, name=name) for shape, name in zip(shapes, "qkv", strict=True))
    softmax = topi.nn.softmax(topi.nn.batch_matmul(q, k, transpose_b=False))
    j = te.reduce_axis((0, keys), "j")
    rows = (keys, heads * size)
    result = te.compute(rows, lambda i, c: te.sum(softmax[c // size, i, j] * v[c // size, j, c % size], axis=j))
    func = te.create_prim_func([q, k, v, result], index_dtype_override="int64")
    chain, model = chain_of(stages_of(simplified_schedule(new_schedule(func), machine))), ChainModel(machine)
    tiles = model.faster(chain, model.apart(chain))
    assert tiles is not None
    return tiles


def test_what_a_softmax_reads_twice_is_made_once() -> None:
    """Its largest element and its exponentials each multiplied scores by the factor, and looked at masks."""
    mod = attention(plain, *shapes_of(HEADS))
    whole = join_chains(mod, AVX512)
    (name,) = [var for var in whole.get_global_vars() if var.name_hint != "main"][-1:]
    assert str(whole[name]).count("T.float32(0.25)") <= 1


def test_a_factor_stays_where_no_rows_are_reduced() -> None:
    """A sigmoid and the product with it: one epilogue."""

    def gated(emit: Emit, scores: Any) -> Any:
        shifted = scaled(emit, scores)
        return emit(op.multiply(shifted, emit(op.sigmoid(shifted))))

    def body(builder: Any, q: Any, k: Any) -> Any:
        return gated(builder.emit, builder.emit(op.matmul(q, k)))

    (func,) = (
        f
        for var, f in fuse(legalize(program(body, *shapes_of(HEADS)[:2])), Notes()).functions_items()
        if var.name_hint != "main"
    )
    inlined = inline_producers(new_schedule(func), lambda stage, readers: True)
    assert len(stages_of(inlined)) == 2


@pytest.mark.parametrize("machine", [AVX2, AVX512])
def test_partial_results_of_few_rows_stay_in_registers(machine: CpuMachine) -> None:
    """All rows of a tile took each step in turns, their partial results in memory: 12 heads of 512 keys 1.24 times as
    long (Zen 3)."""
    joined = join_chains(attention(plain, *shapes_of(HEADS, keys=4 * KEYS)), machine)
    (kernel,) = (f for f in schedule_module(joined, machine).functions.values() if isinstance(f, tirx.PrimFunc))
    of_lanes = next(loops for name, loops in updates(kernel.body) if name.startswith("T_softmax_maxelem_rf"))
    steps = next(before for before, own in itertools.pairwise(of_lanes) if own.kind == tirx.ForKind.UNROLLED)
    assert int(steps.extent) == 4 * KEYS // machine.lanes(4)


def updates(node: Any, loops: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The blocks that take one more step of a reduction by name, each with the loops around it."""
    if isinstance(node, tirx.SeqStmt):
        for statement in node.seq:
            yield from updates(statement, loops)
    elif isinstance(node, tirx.For):
        yield from updates(node.body, (*loops, node))
    elif isinstance(node, s_tir.SBlockRealize):
        if (name := str(node.block.name_hint)).endswith("_update"):
            yield name, loops
        yield from updates(node.block.body, loops)
