"""Products whose tiles are dealt out evenly among blocks, in the simulator and by the model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from targets.cuda.cases import Case, conv, matmul
from targets.cuda.running import (
    H100,
    Kernels,
    check_case,
    inputs_of,
    machine_code,
    needs_compiler,
    result_of,
)
from targets.cuda.test_products import TOLERANCES, check, check_exact, small
from targets.cuda.test_warpgroups import kernels_of
from tvm import tirx

from bench.cuda.bundles.candidates import candidates
from bench.cuda.bundles.cases import cases, made
from bench.cuda.tables import sums_of
from eqsat_layout.soundness.cuda import KernelFault
from eqsat_layout.targets.cuda.kernels.arithmetics import ARITHMETICS
from eqsat_layout.targets.cuda.kernels.product_kernel import product_kernel
from eqsat_layout.targets.cuda.kernels.product_model import ProductModel, fastest_plan
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.kernels.split_sums import Parts
from eqsat_layout.targets.cuda.kernels.statements import number, simplified
from eqsat_layout.targets.cuda.kernels.stream_k import EvenRuns
from eqsat_layout.targets.cuda.target import make_target
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import substitute

TILES: dict[str, tuple[Case, str, int]] = {
    "more blocks than tiles": (conv((6, 5), 16, 23, (3, 3), pad=1), "tensorfloat32", 4),
    "fewer, with whole tiles behind": (matmul(70, 130, 100), "float16", 4),
    "several tiles in a run": (matmul(33, 70, 70, batch=2, right="nk"), "bfloat16", 3),
}


@pytest.mark.parametrize("name", TILES)
def test_tiles_that_blocks_share(name: str) -> None:
    case, arithmetic, streams = TILES[name]
    check(case, small(arithmetic, streams=streams))


def test_bytes_are_exact() -> None:
    check_exact(matmul(40, 70, 600, right="nk"), "uint8", "int32", streams=3)


def test_warps_that_multiply_together_and_wait_for_the_launch_before() -> None:
    case = conv((9, 8), 16, 70, (3, 3), pad=1)
    check_case(case, *kernels_of(case, "float16", streams=3), TOLERANCES["float16"])


@pytest.mark.parametrize(
    ("left_out", "instead"),
    [(r'"fence\.acq_rel\.gpu;"', '""'), (r"atomicAdd\(.*?, 1\)", "1")],
    ids=["fence", "counter"],
)
def test_without_a_fence_or_the_counter_there_is_a_race(left_out: str, instead: str) -> None:
    func = matmul(24, 24, 200)("float16", "float32", "float16")
    kernels = Kernels(product_kernel(product_of(func), small("float16", streams=2)))
    ((name, source),) = kernels.sources.items()
    kernels.sources[name], count = re.subn(left_out, instead, source)
    assert count > 0
    with pytest.raises(KernelFault, match="another block"):
        result_of(kernels, inputs_of(func))


def pieces_of(runs: EvenRuns, block: int) -> list[list[int]]:
    """Tile, first turn, turns, parts of the tile, place of this part and of the first one: of each tile of a run."""
    found: list[Any] = []

    def body(tile: Any, start: Any, count: Any, parts: Parts) -> Any:
        found.extend([tile, start, count, parts.count, parts.own, parts.place(number(0))])
        return tirx.Evaluate(tile)

    loop = runs.each(number(block), body)
    if not isinstance(loop, tirx.For):
        return [list(map(value, found))]
    return [
        [value(substitute(one, {loop.loop_var: number(index)})) for one in found] for index in range(value(loop.extent))
    ]


def value(expression: Any) -> int:
    found = as_int(simplified(expression))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "runs", [EvenRuns(3, 7, 5), EvenRuns(7, 4, 5), EvenRuns(11, 3, 4), EvenRuns(1, 9, 4), EvenRuns(9, 2, 2)], ids=repr
)
def test_runs_have_each_pair_once_and_each_part_a_place(runs: EvenRuns) -> None:
    turns: list[list[int]] = [[] for _ in range(runs.tiles)]
    places, lengths = list[int](), list[int]()
    for block in range(runs.blocks):
        pieces = pieces_of(runs, block)
        lengths.append(sum(count for _, _, count, *_ in pieces))
        for tile, start, count, parts, own, first in pieces:
            turns[tile] += range(start, start + count)
            assert (parts == 1) == (count == runs.turns)
            assert parts == 1 or 0 <= own - first < parts
            places += [own] if parts > 1 else []
    assert turns == [list(range(runs.turns))] * runs.tiles, "in their order, by the number of the block"
    assert max(lengths[: runs.streams]) - min(lengths[: runs.streams]) <= 1
    assert len(set(places)) == len(places) > 0
    assert max(places) < runs.slots


def shape(rows: int, columns: int, steps: int) -> ProductShape:
    return ProductShape("float16", 1, rows, columns, steps, (16, 16), (rows * steps, columns * steps), 2, True)


def test_the_model_takes_it_where_waves_would_be_cut_off() -> None:
    """150 tiles of the best size for 132 multiprocessors take two waves; 264 take two anyway."""
    cut_off, whole = (ProductModel(shape(rows, 768, 3072), ARITHMETICS["float16"], H100) for rows in (6400, 11264))
    plan, seconds = cut_off.fastest()
    plain = min(cut_off.seconds(one) for one in cut_off.ranked() if not one.streams)
    assert plan.streams % H100.multiprocessors == 0 < plan.streams
    assert seconds < 0.95 * plain
    assert whole.fastest()[0].streams == 0
    open_sizes = ProductModel(replace(shape(6400, 768, 3072), is_known=False), ARITHMETICS["float16"], H100)
    assert not any(one.streams for one in open_sizes.ranked())


def test_numbers_of_whole_tiles_fit_in_32_bits_too() -> None:
    """The owners of their turns are worked out as those of shared tiles are, though nobody asks for them."""
    ranked = ProductModel(shape(32768, 32640, 32768), ARITHMETICS["float16"], H100).ranked()
    for one in ranked:
        tiles = 32768 // one.block_rows * -(-32640 // one.block_columns)
        assert tiles * (32768 // one.block_steps) * one.streams < 2**31


def test_bundles_have_some() -> None:
    """Among the families that a card checks, and the plans that it times."""
    target = make_target({"kind": "cuda", "arch": "sm_90"}, True)
    (case,) = cases(["streamed_float16"])
    _, program, _ = made(case, target)
    (source,) = program.sources.values()
    assert sums_of(source) == "stream-K"
    func = matmul(200, 300, 1024)("float16", "float32", "float16")
    ((item, _),) = candidates({"main": func}, target, 3, 1, set())
    assert len({(plan["splits"] > 1, plan["streams"] > 0) for plan in item.said["plans"].values()}) == 3


@needs_compiler
def test_machine_code_spills_nothing() -> None:
    product = product_of(matmul(6400, 768, 3072)("float16", "float32", "float16"))
    plan, _ = fastest_plan(product, H100)
    assert plan.streams
    (source,) = Kernels(product_kernel(product, plan)).sources.values()
    (facts,) = machine_code(source, "sm_90").kernels.values()
    assert facts.spilled_bytes == 0
    assert facts.registers * plan.threads * (plan.streams // H100.multiprocessors) <= H100.registers
