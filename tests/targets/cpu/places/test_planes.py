"""Planes of any width are rows for reductions whose places they number, and numbers stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, AVX512, built
from tvm import te, topi

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.places.box import Box, in_boxes
from eqsat_layout.targets.cpu.places.planes import planes_as_rows
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def convolution(inputs: int, outputs: int, height: int, width: int, taps: int = 1, columns: int = 1) -> Any:
    """Channels first, a bias behind it: ``taps`` rows of a window of so many columns, as large a result as the data."""
    data = te.placeholder((1, inputs, height, width), name="data")
    weights = te.placeholder((outputs, inputs, taps, columns), name="weights")
    bias = te.placeholder((1, outputs, 1, 1), name="bias")
    sums = topi.nn.conv2d_nchw(data, weights, 1, (taps // 2, columns // 2), 1)
    return te.create_prim_func([data, weights, bias, topi.add(sums, bias)], index_dtype_override="int64")


def places(func: Any) -> list[int | None]:
    """The extents of the reduction's result."""
    (stage,) = [s for s in stages_of(new_schedule(func)) if s.is_reduction]
    return [axis.extent for axis in stage.spatial]


def ran(func: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    shapes = [[int(extent) for extent in param.ty.shape] for param in func.params]
    arrays = [tvm.runtime.tensor(rng.standard_normal(shape, dtype="float32")) for shape in shapes]
    built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))["k"](*arrays)
    return arrays[-1].numpy()


@pytest.mark.parametrize(("height", "width", "taps"), [(7, 7, 1), (37, 37, 1), (14, 14, 1), (15, 9, 3)])
def test_planes_of_odd_width_are_rows(height: int, width: int, taps: int) -> None:
    """1x1 windows over 7x7 places had vectors of 7: .7 of a peer's speed on AVX2."""
    func = planes_as_rows(convolution(32, 48, height, width, taps), AVX2).func
    assert places(func) == [1, 48, height * width]


@pytest.mark.parametrize("func", [convolution(32, 48, 64, 64), convolution(32, 48, 7, 7, 1, 3)])
def test_rows_of_whole_vectors_and_windows_along_rows_stay(func: Any) -> None:
    with pytest.raises(Refused):
        planes_as_rows(func, AVX2)


@pytest.mark.parametrize(("height", "width"), [(23, 23), (8, 8)])
def test_borders_that_vectors_cross_are_made_first(height: int, width: int) -> None:
    """A window of 5x1 of each channel took its vectors apart, as some lanes were at the border: 5 times as long."""
    data = te.placeholder((1, 16, height, width), name="data")
    weights = te.placeholder((16, 1, 5, 1), name="weights")
    sums = topi.nn.group_conv2d_nchw(data, weights, 1, (2, 0), 1, 16)
    func = te.create_prim_func([data, weights, sums], index_dtype_override="int64")
    scheduled = schedule_primfunc(func, AVX2)
    products = [line for line in str(scheduled).splitlines() if "* weights[" in line]
    assert products
    assert not any("if_then_else" in line for line in products)
    np.testing.assert_allclose(ran(scheduled), ran(func), rtol=1e-5, atol=1e-5)


@given(
    channels=st.tuples(st.integers(1, 9), st.integers(2, 40)),
    size=st.tuples(st.integers(2, 15), st.integers(2, 15)),
    taps=st.sampled_from((1, 1, 3)),
)
@settings(max_examples=tries(12))
def test_the_numbers_stay_the_same(channels: tuple[int, int], size: tuple[int, int], taps: int) -> None:
    func = convolution(*channels, *size, taps)
    np.testing.assert_allclose(ran(schedule_primfunc(func, AVX2)), ran(func), rtol=1e-4, atol=1e-4)


def test_a_part_of_wider_rows_is_not_taken_for_a_plane() -> None:
    """A result that is written into the left part of wider rows: the plane's rows do not lie one after another."""
    func = convolution(8, 16, 7, 7)
    wide = in_boxes(func, {3: Box((1, 16, 7, 7), (1, 16, 7, 10), (0, 1, 2, 3), (0, 0, 0, 2))})
    tall = in_boxes(func, {3: Box((1, 16, 7, 7), (1, 40, 7, 7), (0, 1, 2, 3), (0, 5, 0, 0))})
    plain = ran(schedule_primfunc(func, AVX2))
    np.testing.assert_allclose(ran(schedule_primfunc(wide, AVX2))[..., 2:9], plain, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ran(schedule_primfunc(tall, AVX2))[:, 5:21], plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 4])
def test_planes_that_are_read_by_one_axis_or_in_vectors_are_scheduled(rank: int) -> None:
    """Internal errors of schedules, and slow kernels: a reshape behind a pool has no two axes, and the number of a
    plane's row was a vector where its places were one (found by the program fuzzer)."""
    data = te.placeholder((4, 2, 2, 6) if rank > 1 else (3, 1, 7, 28, 2), name="data")
    swapped = te.compute(data.shape, lambda a, b, c, d: data[a, c, b, d], name="swapped") if rank > 1 else data
    r, s = te.reduce_axis((0, 1), "r"), te.reduce_axis((0, 1 if rank > 1 else 2), "s")
    if rank > 1:
        sums = te.compute(data.shape, lambda a, b, c, d: te.sum(swapped[a, b, c + r, d + s], axis=[r, s]), name="sums")
        result = topi.identity(sums)
    else:
        shape = (3, 1, 7, 27, 2)
        most = te.compute(shape, lambda a, b, c, d, e: te.max(data[a, b, c + r, d + s, e], axis=[r, s]), name="most")
        result = topi.reshape(most, (3 * 7 * 27 * 2,))
    func = te.create_prim_func([data, result], index_dtype_override="int64")
    for machine in (AVX2, AVX512):
        np.testing.assert_array_equal(ran(schedule_primfunc(func, machine)), ran(func))
