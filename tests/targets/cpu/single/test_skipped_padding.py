"""Steps whose whole tile reads the zeros of a pad are left out; others are done, whatever the tile."""

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
from eqsat_layout.targets.cpu.single.skipped_padding import skip_padding
from eqsat_layout.targets.cpu.target import normalize_target
from eqsat_layout.tir.structural import nodes_of

INPUTS, OUTPUTS = 24, 32


def convolution(size: tuple[int, int], window: tuple[int, int], dilation: int, stride: int, around: int) -> Any:
    """Channels last, with as many zeros on all sides."""
    data = te.placeholder((*size, INPUTS), name="data")
    weights = te.placeholder((*window, INPUTS, OUTPUTS), name="weights")
    y, x, i = (te.reduce_axis((0, extent)) for extent in (*window, INPUTS))

    def padded(h: Any, w: Any, c: Any) -> Any:
        is_inside = tirx.all(h >= around, h < size[0] + around, w >= around, w < size[1] + around)
        return tirx.if_then_else(is_inside, data[h - around, w - around, c], tirx.const(0, "float32"))

    pad = te.compute((*(extent + 2 * around for extent in size), INPUTS), padded, name="pad")
    out = [(n + 2 * around - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, window, strict=True)]

    def element(h: Any, w: Any, o: Any) -> Any:
        read = pad[h * stride + y * dilation, w * stride + x * dilation, i]
        return te.sum(read * weights[y, x, i, o], axis=[y, x, i])

    result = te.compute((*out, OUTPUTS), element, name="result")
    return te.create_prim_func([data, weights, result], index_dtype_override="int64")


def run(func: Any, data: Any, weights: Any, shape: tuple[int, ...]) -> Any:
    result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    built = build_scheduled(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), normalize_target())
    built["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(weights), result)
    return result.numpy()


@pytest.mark.parametrize(
    ("size", "window", "dilation", "stride", "around"),
    [
        ((14, 14), (3, 3), 5, 1, 5),
        ((13, 17), (3, 3), 12, 1, 12),
        ((9, 11), (5, 5), 2, 1, 4),
        ((15, 10), (3, 1), 6, 2, 6),
        ((5, 40), (1, 3), 16, 1, 16),
    ],
)
def test_rows_of_padding_are_not_multiplied(
    size: tuple[int, int], window: tuple[int, int], dilation: int, stride: int, around: int
) -> None:
    """A convolution of dilation 12 on 28 x 28 took 1.4 times as long."""
    scheduled = schedule_primfunc(convolution(size, window, dilation, stride, around), PRESETS["avx2"])
    assert nodes_of(scheduled.body, tirx.IfThenElse)
    rng = np.random.default_rng(0)
    shapes = (*size, INPUTS), (*window, INPUTS, OUTPUTS)
    data, weights = (rng.integers(-3, 4, shape).astype("float32") for shape in shapes)
    padded = np.pad(data, ((around, around), (around, around), (0, 0)))
    spans = tuple(dilation * (k - 1) + 1 for k in window)
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(0, 1))
    views = views[::stride, ::stride, :, ::dilation, ::dilation]
    expected = np.einsum("hwiyx,yxio->hwo", views, weights)
    np.testing.assert_array_equal(run(scheduled, data, weights, expected.shape), expected)


def test_padding_beside_an_image_is_not_multiplied() -> None:
    """Tiles of 13 went on from one row to the next, where each window reads some of either: 256 to 64 channels of 33 x
    33, dilation 12, took 2270 us, and take 1800 in tiles of 11 (Zen 4)."""
    scheduled = schedule_primfunc(convolution((33, 33), (3, 3), 12, 1, 12), PRESETS["avx512 in halves"])
    conditions = [node.condition for node in nodes_of(scheduled.body, tirx.IfThenElse)]
    assert len(conditions) == 2
    rows, columns = ({var.name for var in nodes_of(condition, tirx.Var)} for condition in conditions)
    assert rows.isdisjoint(columns), "along rows and along columns, of tiles in one row each"
    plain = schedule_primfunc(convolution((33, 33), (3, 3), 1, 1, 1), PRESETS["avx512 in halves"])
    assert not nodes_of(plain.body, tirx.IfThenElse)


def test_few_rows_of_padding_are_multiplied() -> None:
    """A branch for one row in fifty costs more than the row."""
    scheduled = schedule_primfunc(convolution((56, 8), (3, 3), 1, 1, 1), PRESETS["avx2"])
    assert not nodes_of(scheduled.body, tirx.IfThenElse)


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_only_zeros_are_padding(fill: float) -> None:
    """Where a stage is filled first, and then written into."""

    @T.prim_func(s_tir=True)
    def func(x: T.Buffer((4, 16), "float32"), y: T.Buffer((8, 16), "float32")) -> None:
        pad = T.sblock_alloc_buffer((12, 16))
        for i, j in T.grid(12, 16):
            with T.sblock("fill"):
                at, c = T.axis.remap("SS", [i, j])
                pad[at, c] = T.float32(fill)
        for i, j in T.grid(4, 16):
            with T.sblock("copy"):
                at, c = T.axis.remap("SS", [i, j])
                pad[at + 4, c] = x[at, c]
        for i, j in T.grid(8, 16):
            with T.sblock("init"):
                at, c = T.axis.remap("SS", [i, j])
                y[at, c] = T.float32(0)
        for i, k, j in T.grid(8, 2, 16):
            with T.sblock("sum"):
                step, at, c = T.axis.remap("RSS", [k, i, j])
                y[at, c] = y[at, c] + pad[at + step * 4, c]

    done = skip_padding(func)
    assert len(nodes_of(done.body, tirx.IfThenElse)) == (1 if fill == 0.0 else 0)


def test_open_sizes_are_scheduled() -> None:
    """Whether a tile is padding was asked for numbers, which a size is not: the kernel was left without a schedule."""

    @T.prim_func(s_tir=True)
    def func(x: T.handle, weights: T.Buffer((3,), "float32"), y: T.handle) -> None:
        h = T.int64()
        data, result = T.match_buffer(x, (h,), "float32"), T.match_buffer(y, (h,), "float32")
        pad = T.sblock_alloc_buffer((h + T.int64(24),), "float32")
        for i in T.serial(h + T.int64(24)):
            with T.sblock("pad"):
                at = T.axis.spatial(h + T.int64(24), i)
                pad[at] = T.if_then_else(
                    T.int64(12) <= at and at < h + T.int64(12), data[at - T.int64(12)], T.float32(0)
                )
        for i in T.serial(h):
            with T.sblock("init"):
                at = T.axis.spatial(h, i)
                result[at] = T.float32(0)
        for i, k in T.grid(h, T.int64(3)):
            with T.sblock("sum"):
                at, step = T.axis.remap("SR", [i, k])
                result[at] = result[at] + pad[at + step * T.int64(12)] * weights[step]

    assert skip_padding(func).same_as(func)
