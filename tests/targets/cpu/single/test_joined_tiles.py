"""Tiles over several axes at once: what is joined once is not joined again."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, AVX512, HALVES
from tvm import te, topi

from eqsat_layout.targets.cpu.build import build_scheduled
from eqsat_layout.targets.cpu.model.register_tiles import joined_tile
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.joined_tiles import join_tiles
from eqsat_layout.targets.cpu.target import make_target
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of


def product_of_a_batch(images: int, rows: int, steps: int, columns: int):
    """``images`` times ``rows`` rows of ``steps`` elements by weights in panels of 16 columns."""
    data = te.placeholder((images, rows, steps), name="data")
    weights = te.placeholder((columns // 16, steps, 16), name="weights")
    k = te.reduce_axis((0, steps), "k")

    def element(n, i, j):
        return te.sum(data[n, i, k] * weights[j // 16, k, j % 16], axis=k)

    y = te.compute((images, rows, columns), element, name="product")
    return new_schedule(te.create_prim_func([data, weights, y], index_dtype_override="int64"))


def test_rows_of_several_images_that_lie_a_page_apart_are_joined_once():
    """CLIP's MLP for four images, SegFormer's head: rows of 4 KiB share one set of L1, so that few make a tile; joined,
    their distance was not known, a tile of 13 looked better and was made of overlapping tiles: half as fast."""
    sch = product_of_a_batch(4, 197, 1024, 256)
    wanted = joined_tile(stages_of(sch)[0], HALVES)
    assert wanted is not None
    assert (wanted.first, wanted.last) == (0, 2)
    joined = stages_of(join_tiles(sch, HALVES))[0]
    assert [axis.extent for axis in joined.spatial] == [wanted.count, wanted.size, 256]


@pytest.mark.parametrize(("size", "window", "stride"), [((3, 17), 3, 1), ((4, 19), 5, 1), ((5, 23), 3, 2)])
def test_depthwise_rows_in_tiles_that_overlap(size: tuple[int, int], window: int, stride: int):
    """What lies in two tiles is computed twice, with what follows it."""
    target, around, channels = make_target(None, True), window // 2, 20
    data = te.placeholder((1, *size, channels), name="data")
    weights = te.placeholder((window, window, channels), name="weights")
    own = topi.nn.pad(data, (0, around, around, 0), name="pad")
    y, x = te.reduce_axis((0, window)), te.reduce_axis((0, window))
    after = [(extent - 1) // stride + 1 for extent in size]

    def element(n, h, w, c):
        return te.sum(own[n, h * stride + y, w * stride + x, c] * weights[y, x, c], axis=[y, x])

    sums = te.compute((1, *after, channels), element, name="depthwise")
    func = te.create_prim_func([data, weights, topi.nn.relu(sums)], index_dtype_override="int64")
    kernel = schedule_primfunc(func.with_attr("global_symbol", "main"), target.machine)
    rng = np.random.default_rng(0)
    shapes = [[int(extent) for extent in tensor.shape] for tensor in (data, weights, sums)]
    arrays = [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    build_scheduled(tvm.IRModule({"main": kernel}), target.tvm)["main"](*tensors)
    wide = np.pad(arrays[0], [(0, 0), (around, around), (around, around), (0, 0)])
    views = np.lib.stride_tricks.sliding_window_view(wide, (window, window), (1, 2))[:, ::stride, ::stride]
    wanted = np.maximum(np.einsum("nhwcyx,yxc->nhwc", views, arrays[1]), 0)
    np.testing.assert_array_equal(tensors[-1].numpy(), wanted)


@pytest.mark.parametrize(("blocks", "side"), [(7, 5), (11, 13)])
def test_tiles_hold_several_blocks_of_channels_of_which_there_are_an_odd_number(blocks: int, side: int) -> None:
    """Xception's 91 blocks of 8 channels on AVX2: tiles of one block loaded an element for every product, and took 1.4
    times as long. The last two overlap the ones before, and so do those of pixels."""
    data = te.placeholder((blocks, side, side, 8), name="data")
    weights, start = te.placeholder((blocks, blocks, 8, 8), name="weights"), te.placeholder((blocks, 8), name="start")
    block, place = te.reduce_axis((0, blocks)), te.reduce_axis((0, 8))

    def element(o, h, w, c):
        return te.sum(data[block, h, w, place] * weights[o, block, place, c], axis=[block, place])

    sums = te.compute((blocks, side, side, 8), element, name="product")
    result = te.compute(sums.shape, lambda o, h, w, c: te.max(sums[o, h, w, c] + start[o, c], 0.0), name="result")
    func = te.create_prim_func([data, weights, start, result], index_dtype_override="int64")
    target = make_target(None, True)
    joined = stages_of(join_tiles(new_schedule(func), AVX2))[0]
    assert joined.spatial[1].extent in (2, 3)
    kernel = schedule_primfunc(func.with_attr("global_symbol", "main"), AVX2)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, list(map(int, t.shape))).astype("float32") for t in (data, weights, start, result)]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    build_scheduled(tvm.IRModule({"main": kernel}), target.tvm)["main"](*tensors)
    wanted = np.einsum("bhwp,obpc->ohwc", *arrays[:2]) + arrays[2][:, None, None]
    np.testing.assert_array_equal(tensors[-1].numpy(), np.maximum(wanted, 0))


def test_products_that_a_stage_reads_at_several_places_have_a_schedule() -> None:
    """Gates of an LSTM of 33 numbers, each a part of one row: TVM ended in an internal error (AVX2)."""
    state, weights = te.placeholder((5, 33), name="state"), te.placeholder((33, 66), name="weights")
    k = te.reduce_axis((0, 33), name="k")
    products = te.compute((5, 66), lambda b, j: te.sum(state[b, k] * weights[k, j], k), name="products")
    gated = te.compute((5, 33), lambda b, j: te.exp(products[b, j]) * products[b, j + 33], name="gated")
    func = te.create_prim_func([state, weights, gated], index_dtype_override="int64")
    for machine in (AVX2, AVX512):
        assert "T.vectorized" in schedule_primfunc(func, machine).script()
