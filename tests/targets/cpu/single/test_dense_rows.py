"""Rows that drive each other out of L2 are copied to where they lie side by side, and numbers stay what they were."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.cpu.byte_kernels import ran
from targets.machines import AVX2, AVX512, with_small_caches
from tvm import te, tirx

from eqsat_layout.targets.cpu.model.cache_sets import overflows_sets
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.dense_rows import in_dense_rows
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

HERE = with_small_caches(make_target(None, True).machine)
"""Of 16 KiB of L2, so that rows 2 KiB apart share one set of it."""


def pointwise(channels: int, results: int, height: int, width: int, *, ending: Any = None) -> Any:
    """Channels first: those of a place lie a plane apart."""
    data = te.placeholder((1, channels, height, width), name="data")
    weights = te.placeholder((results, channels), name="weights")
    c = te.reduce_axis((0, channels), "c")
    sums = te.compute(
        (1, results, height, width), lambda n, o, y, x: te.sum(data[n, c, y, x] * weights[o, c], c), "sums"
    )
    last = sums if ending is None else te.compute(sums.shape, lambda *at: ending(sums(*at)), "ending")
    return te.create_prim_func([data, weights, last], index_dtype_override="int64")


def channels_last(channels: int, results: int, height: int, width: int) -> Any:
    """Its results have channels last: elements of the data are broadcast."""
    data = te.placeholder((1, channels, height, width), name="data")
    weights = te.placeholder((channels, results), name="weights")
    c = te.reduce_axis((0, channels), "c")
    sums = te.compute(
        (1, height, width, results), lambda n, y, x, o: te.sum(data[n, c, y, x] * weights[c, o], c), "sums"
    )
    return te.create_prim_func([data, weights, sums], index_dtype_override="int64")


def blocked(blocks: int, results: int, height: int, width: int, taps: int) -> Any:
    """Channels in blocks of 16, which lie a plane apart, and a window down the rows."""
    data = te.placeholder((blocks, height + taps - 1, width, 16), name="data")
    weights = te.placeholder((results, blocks, taps, 16, 16), name="weights")
    axes = [te.reduce_axis((0, extent), name) for extent, name in ((blocks, "b"), (taps, "t"), (16, "i"))]

    def element(r: Any, y: Any, x: Any, o: Any) -> Any:
        b, t, i = axes
        return te.sum(data[b, y + t, x, i] * weights[r, b, t, i, o], axes)

    sums = te.compute((results, height, width, 16), element, "sums")
    return te.create_prim_func([data, weights, sums], index_dtype_override="int64")


def shapes_of(func: Any) -> list[tuple[int, ...]]:
    return [tuple(int(extent) for extent in param.ty.shape) for param in func.params]


def copies(func: Any, machine: Any) -> list[Any]:
    return [stage for stage in stages_of(in_dense_rows(new_schedule(func), machine)) if stage.is_copy]


@pytest.mark.parametrize("size", [128, 256])
def test_channels_of_large_images_are_copied(size: int) -> None:
    """Pointwise convolutions over 256x256 took 3.4 times as long as their products."""
    func = pointwise(64, 64, size, size)
    (copy,) = copies(func, AVX2)
    assert copy.write.shape == (1, size, size // 16, 64, 16)
    assert len(copies(channels_last(64, 64, size, size), AVX512)) == 1


def test_copies_store_to_few_pages_in_turns() -> None:
    """Each channel was stored to 128 pages, more than the TLB holds: the copy took as long as the product (Zen 5)."""
    text = schedule_primfunc(pointwise(64, 64, 128, 128), AVX512).script()
    (names,) = re.findall(r"for (.*) in T.grid.*\n.*T.vectorized.*\n.*_dense_of_sums", text)
    loops = names.split(", ")
    rows, channels = loops.index("ax1"), loops.index("ax3")
    assert rows < channels


@pytest.mark.parametrize(
    "func",
    [
        pytest.param(pointwise(64, 64, 120, 120), id="planes that have sets of their own"),
        pytest.param(pointwise(64, 64, 32, 32), id="all of the data fits"),
        pytest.param(pointwise(64, 1, 128, 128), id="each element is read once"),
        pytest.param(pointwise(6, 64, 256, 256), id="few channels"),
    ],
)
def test_others_are_read_where_they_are(func: Any) -> None:
    assert not copies(func, AVX2)


@settings(max_examples=tries(12))
@given(
    channels=st.integers(9, 40),
    results=st.integers(2, 35),
    size=st.sampled_from([(1, 512), (2, 256), (3, 512), (4, 128), (32, 16), (64, 8)]),
    ending=st.sampled_from([None, lambda value: te.max(value, tirx.const(0.0, "float32")), te.exp]),
    lasts=st.booleans(),
)
def test_numbers_stay(channels: int, results: int, size: tuple[int, int], ending: Any, lasts: bool) -> None:
    func = channels_last(channels, results, *size) if lasts else pointwise(channels, results, *size, ending=ending)
    check(func)


@settings(max_examples=tries(6))
@given(blocks=st.integers(9, 12), results=st.integers(1, 4), height=st.integers(4, 6), taps=st.sampled_from([1, 3]))
def test_numbers_of_blocks_stay(blocks: int, results: int, height: int, taps: int) -> None:
    check(blocked(blocks, results, height, 32, taps))


def check(func: Any) -> None:
    rng = np.random.default_rng(0)
    *given_arrays, shape = shapes_of(func)
    arrays = [rng.standard_normal(own, dtype="float32") for own in given_arrays]
    results = [ran(own, [*arrays, np.zeros(shape, "float32")]) for own in (schedule_primfunc(func, HERE), func)]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


@settings(max_examples=tries(50))
@given(
    channels=st.integers(1, 80),
    height=st.integers(1, 64),
    width=st.integers(1, 64),
    machine=st.sampled_from([HERE, AVX2]),
)
def test_sets_are_counted(channels: int, height: int, width: int, machine: Any) -> None:
    """As lines one by one fall into sets."""
    (stage,) = stages_of(new_schedule(pointwise(channels, 2, height, width)))
    load = next(own for own in stage.loads if len(own.indices) == 4)
    sets = machine.l2_bytes // machine.l2_ways // machine.line_bytes
    lines = {4 * c * height * width // machine.line_bytes for c in range(channels)}
    fullest = max(sum(line % sets == number for line in lines) for number in {line % sets for line in lines})
    is_larger = 4 * channels * height * width > machine.l2_bytes
    assert overflows_sets(load, stage.reduced, machine) == (is_larger and fullest > machine.l2_ways)
