"""Tiles of a product are made in the order in which their results lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from targets.machines import AVX512
from tvm import te, tirx

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.tir.structural import nodes_of, substitute

ONE_CORE = replace(AVX512, cores=1)


def rows_of_planes(channels: int, outputs: int, rows: int, columns: int):
    """A convolution with a window of one place; its name, and what its result is."""
    data = te.placeholder((channels, rows, columns), name="data")
    weights = te.placeholder((outputs, channels), name="weights")
    c = te.reduce_axis((0, channels), "c")
    y = te.compute((outputs, rows, columns), lambda o, h, w: te.sum(data[c, h, w] * weights[o, c], axis=c), name="y")
    return te.create_prim_func([data, weights, y], index_dtype_override="int64").with_attr("global_symbol", "main")


def step_of_innermost_tiles(kernel) -> int:
    """Elements of the result between a tile and the one that is made after it."""
    result = kernel.params[-1]
    realize = next(
        one
        for one in nodes_of(kernel.body, tvm.s_tir.SBlockRealize)
        if one.block.name_hint != "root" and any(written.source.same_as(result) for written in one.block.writes)
    )
    around = [
        loop
        for loop in nodes_of(kernel.body, tirx.For)
        if any(map(realize.same_as, nodes_of(loop.body, type(realize))))
    ]
    tiles = [loop.loop_var for loop in around if loop.kind == tirx.ForKind.SERIAL and int(loop.extent) > 1]
    store = next(iter(nodes_of(realize.block.body, tirx.BufferStore)))
    axes = dict(zip((axis.var for axis in realize.block.iter_vars), realize.iter_values, strict=True))

    def place(number: int) -> int:
        at = {loop.loop_var: tirx.const(0, "int64") for loop in around}
        at[min(tiles, key=lambda var: order.index(var))] = tirx.const(number, "int64")
        found = 0
        for index, extent in zip(store.indices, result.ty.shape, strict=True):
            own = tvm.sym.Analyzer().simplify(substitute(substitute(index, axes), at))
            found = found * int(extent) + int(own)
        return found

    order = [loop.loop_var for loop in sorted(around, key=lambda loop: len(nodes_of(loop.body, tirx.For)))]
    return place(1) - place(0)


def test_results_of_one_plane_are_stored_one_after_another():
    """200 planes of 73x75 took three times as long when each row was stored in all planes before the next one."""
    kernel = schedule_primfunc(rows_of_planes(16, 96, 40, 75), ONE_CORE)
    assert 0 < step_of_innermost_tiles(kernel) <= 75


def test_weights_that_fill_the_cache_are_read_once():
    """Of 4096 channels, a run of rows would not stay in L2 beside them: planes are the innermost loop."""
    kernel = schedule_primfunc(rows_of_planes(4096, 96, 40, 75), ONE_CORE)
    assert step_of_innermost_tiles(kernel) >= 40 * 75


@pytest.mark.parametrize(("channels", "outputs", "rows", "columns"), [(3, 10, 7, 75), (16, 24, 40, 32), (5, 7, 11, 13)])
def test_they_are_the_same(channels: int, outputs: int, rows: int, columns: int):
    func = rows_of_planes(channels, outputs, rows, columns)
    target = make_target(None, True)
    library = build_scheduled(tvm.IRModule({"main": schedule_primfunc(func, ONE_CORE)}), target.tvm)
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal((channels, rows, columns)), rng.standard_normal((outputs, channels))
    tensors = [tvm.runtime.tensor(a.astype("float32")) for a in (data, weights, np.zeros((outputs, rows, columns)))]
    library["main"](*tensors)
    expected = np.einsum("chw,oc->ohw", data, weights)
    np.testing.assert_allclose(tensors[2].numpy(), expected, rtol=1e-4, atol=1e-4)
