"""Windows of several rows, which move by strides, are done down the rows first, and numbers stay what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, HALVES, built
from tvm import te, topi

from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.phases import in_phases
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stages_of

KINDS = {"max": np.max, "avg": np.mean}


def pool(shape: tuple[int, ...], taps: int, stride: int, around: int, kind: str) -> Any:
    """Over all axes but two, padding counted."""
    data, count = te.placeholder(shape, name="data"), len(shape) - 2
    own = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}[count]
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[count]
    sizes = ([taps] * count, [stride] * count, [1] * count, [around] * 2 * count)
    pooled = own(data, *sizes, kind, layout=layout, count_include_pad=True)
    return te.create_prim_func([data, pooled], index_dtype_override="int64")


def reductions(func: Any, machine: Any = HALVES) -> list[Stage]:
    return [stage for stage in stages_of(in_phases(new_schedule(func), machine)) if stage.is_reduction]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("taps", "stride", "around"), [(2, 2, 0), (8, 8, 0), (3, 2, 1)])
def test_rows_of_a_window_are_reduced_first(kind: str, taps: int, stride: int, around: int) -> None:
    """All elements were put in phases, one at a time: 8x8 of 64x56x56 took 40 us, and takes 12 (Zen 4)."""
    down, along = reductions(pool((1, 8, 56, 56), taps, stride, around, kind))
    assert (down.steps, along.steps) == (taps, taps)
    assert [load.stride(down.spatial[-1].var) for load in down.loads] == [1], "whole vectors"
    assert down.spatial[-1].extent == 56, "none of the padding"
    assert all(load.stride(along.spatial[-1].var) == 1 for load in along.loads)


def test_steps_that_are_to_be_done_in_order_stay_in_order() -> None:
    assert len(reductions(pool((1, 8, 56, 56), 2, 2, 0, "avg"), replace(HALVES, is_exact=True))) == 1


def test_windows_of_one_row_stay_as_they_are() -> None:
    assert len(reductions(pool((1, 8, 56), 2, 2, 0, "max"))) == 1


def test_padding_that_counts_is_no_part_of_what_is_left() -> None:
    """The largest of rows between zeros: what is left of them is not what a row begins with."""
    data = te.placeholder((4, 56, 56), name="data")
    padded = topi.nn.pad(data, [0, 1, 1], name="padded")  # with zeros, where a maximum begins with -inf
    y, x = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    largest = te.compute((4, 28, 28), lambda c, h, w: te.max(padded[c, h * 2 + y, w * 2 + x], axis=[y, x]))
    func = te.create_prim_func([data, largest], index_dtype_override="int64")
    array = -1 - np.random.default_rng(0).random((4, 56, 56), dtype="float32")
    result = run(func, array, (4, 28, 28))
    assert (result[:, 0] == 0).all()
    assert (result[:, 1:, 1:] < 0).all()


def test_padding_that_is_a_result_too_is_written() -> None:
    """The block that makes it was left out, as where only the window reads it: the other result was not written."""
    data = te.placeholder((4, 30, 30), name="data")
    padded = topi.nn.pad(data, [0, 1, 1], pad_value=te.min_value("float32"), name="padded")
    y, x = te.reduce_axis((0, 4)), te.reduce_axis((0, 4))
    largest = te.compute((4, 15, 15), lambda c, h, w: te.max(padded[c, h * 2 + y, w * 2 + x], axis=[y, x]))
    func = te.create_prim_func([data, padded, largest], index_dtype_override="int64")
    stages = stages_of(in_phases(new_schedule(func), HALVES))
    assert any(stage.write.buffer.same_as(func.params[1]) for stage in stages)
    assert [stage.steps for stage in stages if stage.is_reduction] == [4, 4], "rows first all the same"


@given(
    sides=st.lists(st.integers(5, 40), min_size=2, max_size=3),
    taps=st.integers(2, 5),
    stride=st.integers(2, 5),
    around=st.integers(0, 2),
    kind=st.sampled_from(sorted(KINDS)),
    machine=st.sampled_from([AVX2, HALVES]),
)
@settings(max_examples=tries(15), deadline=None)
def test_the_numbers_stay_the_same(
    sides: list[int], taps: int, stride: int, around: int, kind: str, machine: Any
) -> None:
    around = min(around, taps - 1)
    shape = (2, 3, *(min(side, 14) if len(sides) == 3 else side for side in sides))
    func = pool(shape, taps, stride, around, kind)
    array = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    fill = -np.inf if kind == "max" else 0
    padded = np.pad(array, [(0, 0), (0, 0), *[(around, around)] * len(sides)], constant_values=fill)
    axes = tuple(range(2, len(shape)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, [taps] * len(sides), axes)
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * len(sides))]
    expected = KINDS[kind](windows, axis=tuple(range(len(shape), windows.ndim)))
    result = run(func, array, expected.shape, machine)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def run(func: Any, array: Any, shape: tuple[int, ...], machine: Any = HALVES) -> Any:
    scheduled = schedule_primfunc(func, machine)
    assert scheduled.attrs["tirx.is_scheduled"]
    result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    library = built(tvm.IRModule({"k": scheduled.with_attr("global_symbol", "k")}))
    library["k"](tvm.runtime.tensor(array), result)
    return result.numpy()
