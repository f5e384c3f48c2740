"""Data of windows that move by strides along vectors lie in phases, and numbers stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX2, built
from tvm import s_tir, te, tirx, topi

from eqsat_layout.targets.cpu.cut_loops import cut_at_conditions
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.phases import in_phases
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.blocks import statements_of
from eqsat_layout.tir.structural import nodes_of

HERE = make_target(None, True)
ROWS = 3


def windows(width: int, taps: int, stride: int, dilation: int, around: tuple[int, int]) -> Any:
    """Of every row of places, sums over a window: a depthwise convolution along rows."""
    data, weights = te.placeholder((ROWS, width), name="data"), te.placeholder((ROWS, taps), name="weights")
    own = topi.nn.pad(data, [0, around[0]], [0, around[1]], name="pad") if any(around) else data
    places = (width + sum(around) - (taps - 1) * dilation - 1) // stride + 1
    tap = te.reduce_axis((0, taps), "tap")
    sums = te.compute(
        (ROWS, places), lambda c, x: te.sum(own[c, x * stride + tap * dilation] * weights[c, tap], tap), "sums"
    )
    return te.create_prim_func([data, weights, sums], index_dtype_override="int64")


def wanted(data: Any, weights: Any, stride: int, dilation: int, around: tuple[int, int]) -> Any:
    own, taps = np.pad(data, [(0, 0), around]), weights.shape[1]
    places = (own.shape[1] - (taps - 1) * dilation - 1) // stride + 1
    return sum(
        own[:, t * dilation : t * dilation + (places - 1) * stride + 1 : stride] * weights[:, t : t + 1]
        for t in range(taps)
    )


def strides_along_vectors(func: Any) -> set[int | None]:
    """Of what the reduction reads, once its data lie in phases."""
    (stage,) = [s for s in stages_of(in_phases(new_schedule(func), AVX2)) if s.is_reduction]
    return {load.stride(stage.spatial[-1].var) for load in stage.loads}


@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (2, 2), (3, 1), (4, 2)])
@pytest.mark.parametrize("around", [(1, 1), (0, 0)])
def test_windows_with_strides_read_vectors(stride: int, dilation: int, around: tuple[int, int]) -> None:
    """Depthwise windows of 7x7 with strides read every second element: .35 of a peer's speed on AVX2."""
    assert strides_along_vectors(windows(100, 3, stride, dilation, around)) == {0, 1}


def test_one_phase_only_is_copied_where_no_other_is_read() -> None:
    """A dilation that strides divide steps over the others."""
    sch = in_phases(new_schedule(windows(100, 3, 2, 2, (2, 2))), AVX2)
    assert [axis.extent for axis in stages_of(sch)[0].axes] == [ROWS, 1, 52]


@pytest.mark.parametrize(("channels", "groups"), [(64, 8), (32, 8), (64, 16)])
@pytest.mark.parametrize("is_centred", [False, True])
def test_groups_side_by_side_are_not_put_in_phases(channels: int, groups: int, is_centred: bool) -> None:
    """Group norm, channels last: data were copied into phases, which took five times as long as the sums.

    Sums go down the places first; squares less a mean, which is another in each group, are taken in lanes.
    """
    each = channels // groups
    data, mean = te.placeholder((512, channels), name="data"), te.placeholder((groups,), name="mean")
    own, place = te.reduce_axis((0, each), "own"), te.reduce_axis((0, 512), "place")

    def added(group: Any) -> Any:
        element = data[place, group * each + own]
        return te.sum((element - mean[group]) * (element - mean[group]) if is_centred else element, [own, place])

    sums = te.compute((groups,), added, "sums")
    func = te.create_prim_func([data, *([mean] if is_centred else []), sums], index_dtype_override="int64")
    stages = stages_of(in_phases(new_schedule(func), AVX2))
    assert stages[0].is_reduction
    assert len(stages) == 1 or stages[0].domain == 512 * channels


def test_windows_without_strides_stay_as_they_are() -> None:
    sch = new_schedule(windows(100, 3, 1, 1, (1, 1)))
    assert in_phases(sch, AVX2) is sch


def test_borders_of_phases_are_cut_out_of_their_loops() -> None:
    """Each phase has its own, so that the loop over phases is unrolled before loops are cut."""
    scheduled = schedule_primfunc(windows(100, 3, 2, 1, (1, 1)), AVX2)
    mod = tvm.IRModule({"k": scheduled.with_attr("global_symbol", "k")})
    for change in (
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        cut_at_conditions(),
        tirx.transform.StmtSimplify(),
    ):
        mod = change(mod)
    copied = [loop for loop in nodes_of(mod["k"].body, tirx.For) if isinstance(loop.body, tirx.BufferStore)]
    copied = [loop for loop in copied if nodes_of(loop.body.value, tvm.ir.TensorLoad)]
    assert max(int(loop.extent) for loop in copied) >= 49
    assert not any(nodes_of(loop.body, tirx.LT, tirx.LE) for loop in copied)


@given(
    width=st.integers(20, 70),
    taps=st.integers(1, 5),
    stride=st.integers(2, 5),
    dilation=st.integers(1, 3),
    around=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
@settings(max_examples=tries(12))
def test_the_numbers_stay_the_same(width: int, taps: int, stride: int, dilation: int, around: tuple[int, int]) -> None:
    func = schedule_primfunc(windows(width, taps, stride, dilation, around), AVX2)
    rng = np.random.default_rng(0)
    data, weights = (rng.standard_normal(shape, dtype="float32") for shape in ((ROWS, width), (ROWS, taps)))
    expected = wanted(data, weights, stride, dilation, around)
    result = tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"))
    library = built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))
    library["k"](tvm.runtime.tensor(data), tvm.runtime.tensor(weights), result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("around", [0, 1])
def test_phases_of_large_data_are_made_tile_by_tile(around: int) -> None:
    """A pool of 2x2 windows wrote all its data to memory once more, and read it from there: 1.5 times as long, also
    depthwise convolutions that move by 2."""
    data = te.placeholder((1, 48, 112, 112), name="data")
    taps = 2 + around
    pooled = topi.nn.pool2d(data, (taps, taps), (2, 2), (1, 1), (around,) * 4, "max", layout="NCHW")
    func = te.create_prim_func([data, pooled], index_dtype_override="int64")
    scheduled = schedule_primfunc(func, HERE.machine)
    assert len(statements_of(scheduled)) == 1
    array = np.random.default_rng(0).standard_normal((1, 48, 112, 112), dtype="float32")
    wide = np.pad(array, [(0, 0), (0, 0), (around, around), (around, around)], constant_values=-np.inf)
    places = [wide[:, :, y : y + 111 : 2, x : x + 111 : 2] for y in range(taps) for x in range(taps)]
    out = tvm.runtime.empty(tuple(int(extent) for extent in func.params[1].ty.shape), "float32")
    built(tvm.IRModule({"k": scheduled.with_attr("global_symbol", "k")}))["k"](tvm.runtime.tensor(array), out)
    np.testing.assert_array_equal(out.numpy(), np.maximum.reduce(places))
