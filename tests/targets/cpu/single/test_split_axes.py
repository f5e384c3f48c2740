"""Reductions over axes that their operands read as two: tiles are of one part each, the numbers the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, AVX512, built
from tvm import te

from eqsat_layout.targets.cpu.model.register_tiles import joined_tile, register_tile, tile_cycles
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.single.split_axes import split_axes
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

PARTS, ROWS, DEPTH, WIDTH = 8, 37, 197, 768  # so much that matrices come from the L2


def product_of_rows_in_turns(ending=None, *, order="turns", indices="int64"):
    """Row ``i`` of the result belongs to matrix ``i % PARTS`` (``order``: turns) or ``i // ROWS`` (order: rows)."""
    a = te.placeholder((PARTS, ROWS, DEPTH), name="a")
    b = te.placeholder((PARTS, DEPTH, WIDTH), name="b")
    c = te.placeholder((WIDTH,), name="c")
    k = te.reduce_axis((0, DEPTH), "k")

    def element(i, j):
        part, row = (i % PARTS, i // PARTS) if order == "turns" else (i // ROWS, i % ROWS)
        return te.sum(a[part, row, k] * b[part, k, j], axis=k)

    y = te.compute((PARTS * ROWS, WIDTH), element, name="product")
    if ending is not None:
        y = te.compute(y.shape, lambda i, j: ending(y[i, j] + c[j]), name="ending")
    return te.create_prim_func([a, b, c, y], index_dtype_override=indices)


def relu(value):
    return te.max(value, tvm.tirx.const(0.0, "float32"))


@pytest.mark.parametrize("indices", ["int64", "int32"])
@pytest.mark.parametrize("order", ["turns", "rows"])
@pytest.mark.parametrize("ending", [None, relu, te.exp])
def test_rows_that_take_turns_are_tiles_of_one_part_each(ending, order, indices):
    """ViT of eight images: 26 GFLOP/s for the products of its attention with the values, 320 since."""
    func = product_of_rows_in_turns(ending, order=order, indices=indices)
    before = stages_of(new_schedule(func))[0]
    cut = split_axes(new_schedule(func), AVX512)
    stage, *rest = stages_of(cut)
    assert [axis.extent for axis in stage.spatial] == [PARTS, ROWS, WIDTH]
    assert len(rest) == 1
    assert tile_cycles(stage, AVX512, joined=True) < 0.5 * tile_cycles(before, AVX512, joined=True)
    tile = joined_tile(stage, AVX512)
    assert (tile.size if tile else register_tile(stage, AVX512).sizes[1]) > 1


@pytest.mark.parametrize("order", ["turns", "rows"])
@pytest.mark.parametrize("ending", [None, relu])
def test_the_numbers_are_those_of_the_whole_axis(ending, order):
    func = product_of_rows_in_turns(ending, order=order)
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(s).astype("float32") for s in ((PARTS, ROWS, DEPTH), (PARTS, DEPTH, WIDTH), WIDTH))
    wanted = a @ b
    wanted = (wanted.transpose(1, 0, 2) if order == "turns" else wanted).reshape(-1, WIDTH)
    wanted = np.maximum(wanted + c, 0) if ending else wanted
    scheduled = schedule_primfunc(func.with_attr("global_symbol", "main"), AVX512)
    library = built(tvm.IRModule({"main": scheduled}))
    result = tvm.runtime.tensor(np.full((PARTS * ROWS, WIDTH), np.nan, "float32"))
    library["main"](*map(tvm.runtime.tensor, (a, b, c)), result)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_an_axis_that_is_cut_for_nothing_stays():
    """Rows of one matrix, whatever the shape in which they are stored."""
    a = te.placeholder((ROWS, PARTS, DEPTH), name="a")
    b = te.placeholder((DEPTH, WIDTH), name="b")
    k = te.reduce_axis((0, DEPTH), "k")
    y = te.compute((ROWS * PARTS, WIDTH), lambda i, j: te.sum(a[i // PARTS, i % PARTS, k] * b[k, j], axis=k))
    sch = new_schedule(te.create_prim_func([a, b, y], index_dtype_override="int64"))
    assert split_axes(sch, AVX512) is sch


def test_both_axes_of_places_between_elements_are_cut() -> None:
    """Of a transposed convolution one was: tiles of one column read all weights for each, and had no neighbours."""
    data, kernel = te.placeholder((8, 8, 64), name="data"), te.placeholder((2, 2, 1, 64, 32), name="kernel")
    c, r = te.reduce_axis((0, 64), "c"), te.reduce_axis((0, 1), "r")

    def element(y, x, o):
        return te.sum(data[y // 2, x // 2, c] * kernel[y % 2, x % 2, r, c, o], axis=[c, r])

    func = te.create_prim_func([data, kernel, te.compute((16, 16, 32), element)], index_dtype_override="int64")
    product, copy = stages_of(split_axes(new_schedule(func), AVX512))
    assert sorted(axis.extent for axis in product.spatial) == [2, 2, 8, 8, 32]
    assert [axis.extent for axis in product.reduced] == [64]  # an axis of one step became one of the result
    assert [axis.extent for axis in copy.axes] == [axis.extent for axis in product.spatial]


@pytest.mark.parametrize("ending", [None, relu])
def test_rows_that_are_no_whole_vectors_are_cut_out_of_a_flat_result(ending) -> None:
    """A grouped convolution of 57 x 38 whose result is flat took vectors of two elements: 870 us, and 260 since."""
    height, width, channels = 9, 38, 24
    data, kernel = te.placeholder((channels, height + 2, width + 2)), te.placeholder((channels, channels, 3, 3))
    c, r, q = (te.reduce_axis((0, n)) for n in (channels, 3, 3))

    def element(o, place):
        y, x = place // width, place % width
        return te.sum(data[c, y + r, x + q] * kernel[o, c, r, q], axis=[c, r, q])

    y = te.compute((channels, height * width), element, name="product")
    if ending is not None:
        y = te.compute(y.shape, lambda i, j: ending(y[i, j]), name="ending")
    func = te.create_prim_func([data, kernel, y], index_dtype_override="int64")
    stage, _ = stages_of(split_axes(new_schedule(func), AVX512))
    assert [axis.extent for axis in stage.spatial] == [channels, height, width]

    rng = np.random.default_rng(3)
    a = rng.standard_normal((channels, height + 2, width + 2)).astype("float32")
    b = rng.standard_normal((channels, channels, 3, 3)).astype("float32")
    windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(1, 2))
    wanted = np.einsum("cyxrq,ocrq->oyx", windows, b).reshape(channels, -1)
    library = built(tvm.IRModule({"main": schedule_primfunc(func.with_attr("global_symbol", "main"), AVX512)}))
    result = tvm.runtime.tensor(np.full((channels, height * width), np.nan, "float32"))
    library["main"](*map(tvm.runtime.tensor, (a, b)), result)
    np.testing.assert_allclose(result.numpy(), np.maximum(wanted, 0) if ending else wanted, rtol=1e-4, atol=1e-4)


def test_results_of_a_pixel_lie_along_its_row():
    """A transposed convolution of 2x2 with stride 2 went down the columns of its image: .4 of a peer's speed."""
    data, weights = te.placeholder((64, 120, 120), name="data"), te.placeholder((2, 2, 64, 32), name="weights")
    c = te.reduce_axis((0, 64), "c")
    sums = te.compute(
        (240, 240, 32), lambda y, x, o: te.sum(data[c, y // 2, x // 2] * weights[y % 2, x % 2, c, o], c), name="sums"
    )
    cut = split_axes(new_schedule(te.create_prim_func([data, weights, sums], index_dtype_override="int64")), AVX2)
    assert [axis.extent for axis in stages_of(cut)[0].spatial] == [120, 2, 120, 2, 32]
