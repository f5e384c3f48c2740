"""Steps beyond a border are branched around; nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.script import tirx as T

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.machine import PRESETS
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.skipped_steps import skip_zero_steps
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of

EXTENT, CHANNELS = 6, 16


def depthwise(window: int, stride: int) -> Any:
    """Channels last, with zeros around."""
    data = te.placeholder((EXTENT, EXTENT, CHANNELS), name="data")
    weights = te.placeholder((window, window, CHANNELS), name="weights")
    y, x = te.reduce_axis((0, window)), te.reduce_axis((0, window))
    around, size = window // 2, (EXTENT - 1) // stride + 1

    def padded(h: Any, w: Any, c: Any) -> Any:
        is_inside = tirx.all(h >= around, h < EXTENT + around, w >= around, w < EXTENT + around)
        return tirx.if_then_else(is_inside, data[h - around, w - around, c], tirx.const(0, "float32"))

    pad = te.compute((EXTENT + 2 * around, EXTENT + 2 * around, CHANNELS), padded, name="pad")

    def element(h: Any, w: Any, c: Any) -> Any:
        return te.sum(pad[h * stride + y, w * stride + x, c] * weights[y, x, c], axis=[y, x])

    result = te.compute((size, size, CHANNELS), element, name="result")
    return te.create_prim_func([data, weights, result], index_dtype_override="int64")


@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (5, 1)])
def test_borders_of_depthwise_windows_are_branched_around(window: int, stride: int) -> None:
    """A load under a condition for each vector took 1.1 to 2 times as long."""
    scheduled = schedule_primfunc(depthwise(window, stride), PRESETS["avx2"])
    assert not [call for call in nodes_of(scheduled.body, tvm.ir.Call) if is_choice(call)]
    assert nodes_of(scheduled.body, tirx.IfThenElse)
    rng = np.random.default_rng(0)
    size = (EXTENT - 1) // stride + 1
    shapes = (EXTENT, EXTENT, CHANNELS), (window, window, CHANNELS)
    data, weights = (rng.uniform(-1, 1, shape).astype("float32") for shape in shapes)
    got = tvm.runtime.tensor(np.zeros((size, size, CHANNELS), "float32"))
    built = build_scheduled(tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")}), normalize_target())
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weights), got)
    around = window // 2
    padded = np.pad(data, ((around, around), (around, around), (0, 0)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (window, window), axis=(0, 1))[::stride, ::stride]
    np.testing.assert_allclose(got.numpy(), np.einsum("hwcyx,yxc->hwc", views, weights), rtol=1e-5, atol=1e-5)


@T.prim_func(private=True, s_tir=True)
def bordered_in_lanes(a: T.Buffer((EXTENT, CHANNELS), "float32"), b: T.Buffer((CHANNELS,), "float32")):  # type: ignore[no-untyped-def, valid-type]
    for i in range(EXTENT):
        for c in T.vectorized(CHANNELS):
            with T.sblock("sum"):
                vi, vc = T.axis.remap("RS", [i, c])
                b[vc] = b[vc] + T.if_then_else(vi < 4 and vc < 10, a[vi, vc], T.float32(0))


def test_a_border_within_vectors_stays_a_condition_of_their_elements() -> None:
    skipping = skip_zero_steps(bordered_in_lanes)
    (branch,) = nodes_of(skipping.body, tirx.IfThenElse)
    assert not nodes_of(branch.condition, tirx.And)
    data = np.random.default_rng(0).uniform(-1, 1, (EXTENT, CHANNELS)).astype("float32")
    got = tvm.runtime.tensor(np.zeros(CHANNELS, "float32"))
    built = build_scheduled(tvm.IRModule({"main": skipping.with_attr("global_symbol", "main")}), normalize_target())
    built["main"](tvm.runtime.tensor(data), got)
    wanted = np.where(np.arange(CHANNELS) < 10, data[:4].sum(axis=0), 0)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)
