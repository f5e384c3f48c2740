"""Register tiles are those with the fewest instructions that memory can keep up with."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from targets.machines import AVX2, AVX512, HALVES, NEON, with_small_caches
from tvm import te

from eqsat_layout.targets.cpu.model.register_tiles import (
    any_tile_cycles,
    joined_tile,
    lane_tile,
    reduction_pieces,
    register_tile,
    tile_cycles,
)
from eqsat_layout.targets.cpu.single.joined_tiles import join_tiles
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

LANES = 16


def convolution(channels, size, *, kernel=1, stride=1, outputs=8):
    """The stage of a convolution of blocks of 16 channels, all sides ``size`` before it."""
    data = te.placeholder((1, channels // LANES, size, size, LANES), name="data")
    weights = te.placeholder((outputs, channels // LANES, kernel, kernel, LANES, LANES), name="weights")
    c, y, x, i = (te.reduce_axis((0, extent)) for extent in (channels // LANES, kernel, kernel, LANES))
    after = (size - kernel) // stride + 1

    def element(n, o, h, w, j):
        return te.sum(data[n, c, h * stride + y, w * stride + x, i] * weights[o, c, y, x, i, j], axis=[c, y, x, i])

    result = te.compute((1, outputs, after, after, LANES), element, name="convolution")
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    return stage


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(lambda: convolution(256, 56), id="1x1"),
        pytest.param(lambda: convolution(256, 56, stride=2), id="1x1 with strides"),
        pytest.param(lambda: convolution(128, 58, kernel=3, stride=2), id="3x3 with strides"),
        pytest.param(lambda: convolution(1024, 14), id="that 196 is not divisible by"),
    ],
)
def test_three_pixels_by_two_blocks(stage):
    """Four pixels by one block need 1.75 instructions a product, these 1.58: a tenth of the time (ResNet-50)."""
    stage = stage()
    tile = joined_tile(stage, AVX2)
    assert tile is not None
    assert (tile.first, tile.last, tile.size) == (2, 4, 3)
    assert tile_cycles(stage, AVX2, joined=True) < 0.95 * tile_cycles(stage, AVX2)


def test_a_tile_holds_both_vectors_of_rows_that_a_vector_does_not_divide():
    """21 channels were three vectors of 7: 4x256->21, 5x5 by 2 of 37x37, took a third longer (Xeon)."""
    data, weights = te.placeholder((4, 41, 41, 256), name="data"), te.placeholder((5, 5, 256, 21), name="weights")
    y, x, c = (te.reduce_axis((0, extent)) for extent in (5, 5, 256))

    def one(image, row, column, channel):
        return te.sum(data[image, row * 2 + y, column * 2 + x, c] * weights[y, x, c, channel], (y, x, c))

    product = te.compute((4, 19, 19, 21), one)
    sch = new_schedule(te.create_prim_func([data, weights, product]))
    (stage,) = stages_of(sch)
    vectors = any_tile_cycles(stage, AVX512) * AVX512.fma_units * 21
    assert 2 < vectors < 2.8, "as if there were three"
    *pixels, pieces, _ = register_tile(stages_of(join_tiles(sch, AVX512))[0], AVX512).sizes
    assert (pieces, math.prod(pixels)) == (2, 13)


def test_blocks_whose_weights_overflow_l2_are_done_one_at_a_time():
    """512 channels at 3x3: two blocks took 30 % longer than one where memory was busy (ResNet-50)."""
    stage = convolution(512, 9, kernel=3, outputs=32)
    tile = joined_tile(stage, AVX2)
    assert tile is not None
    assert tile.size > 3
    larger = replace(AVX2, l2_working_set=2 * AVX2.l2_working_set)
    assert joined_tile(stage, larger).size == 3


def test_no_tile_is_faster_than_units_that_take_half_a_vector():
    """One kernel of three convolutions was chosen, as its arithmetic seemed to take half as long (Zen 4)."""
    stage = convolution(256, 56)
    halves, whole = (tile_cycles(stage, machine, joined=True) for machine in (HALVES, AVX512))
    assert halves >= 1 / (HALVES.vectors_per_cycle * LANES)
    assert whole < 0.7 * halves
    short = replace(HALVES, vector_bytes=32)
    assert tile_cycles(stage, short, joined=True) >= halves, "short vectors are as fast at best"


def test_an_element_that_is_broadcast_is_one_load():
    """Products took two vectors of 8 for one of 16, which took 1.2 times as long (Zen 4, 672 to 112 channels)."""
    stage = convolution(144, 28, outputs=5)
    tile = register_tile(stage, HALVES)
    assert tile.lanes == LANES
    assert tile_cycles(stage, HALVES) < 1.05 / (HALVES.vectors_per_cycle * LANES)


@pytest.mark.parametrize("machine", [AVX2, AVX512, HALVES, replace(NEON, broadcast_operand=False)])
@pytest.mark.parametrize(("channels", "size", "kernel", "stride"), [(64, 56, 1, 1), (16, 15, 3, 1), (48, 9, 1, 2)])
def test_accumulators_and_operands_fit_the_registers(channels, size, kernel, stride, machine):
    tile = register_tile(convolution(channels, size, kernel=kernel, stride=stride), machine)
    vectors = math.prod(tile.sizes) * math.ceil(tile.lanes * 4 / machine.vector_bytes)
    held = 0 if machine.broadcast_operand else 1
    assert vectors + 1 + held <= machine.registers


def test_tiles_do_not_wait_for_panels_of_weights():
    """2 pixels by 13 vectors, whose weights come from L2 in every step, took 1.8 times as long as 8 by 2 (Res2Net)."""
    data, weights = te.placeholder((784, 512), name="data"), te.placeholder((13, 512, 16), name="weights")
    k = te.reduce_axis((0, 512))
    result = te.compute((784, 208), lambda n, c: te.sum(data[n, k] * weights[c // 16, k, c % 16], axis=k))
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    tile = register_tile(stage, HALVES)
    assert tile.lanes * tile.sizes[-1] <= 32


def depthwise(channels, size, window=3):
    """The stage of a depthwise convolution, channels last, ``size`` before it."""
    (stage,) = stages_of(depthwise_schedule(channels, size, window))
    return stage


def depthwise_schedule(channels, size, window):
    data = te.placeholder((1, size, size, channels), name="data")
    weights = te.placeholder((window, window, channels), name="weights")
    y, x = te.reduce_axis((0, window)), te.reduce_axis((0, window))

    def element(n, h, w, c):
        return te.sum(data[n, h + y, w + x, c] * weights[y, x, c], axis=[y, x])

    after = size - window + 1
    result = te.compute((1, after, after, channels), element, name="depthwise")
    return new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64"))


@pytest.mark.parametrize("machine", [AVX512, HALVES])
@pytest.mark.parametrize("channels", [32, 96, 144])
def test_depthwise_tiles_leave_registers_for_what_a_window_reads_again(channels, machine):
    """8 pixels by 48 channels, or 28 by 16, took 1.5 to 3.5 times as long as 10 by 16: LLVM keeps a row of the data."""
    tile = register_tile(depthwise(channels, 58), machine)
    *_, rows, columns, vectors = tile.sizes
    assert rows * vectors * (columns + columns + 2) <= machine.registers + 3


@pytest.mark.parametrize("machine", [AVX2, AVX512, HALVES])
def test_a_depthwise_tile_of_a_long_window_is_one_row(machine):
    """7x7 on 14x14: two rows of two took 2.4 times as long (Xeon), as all that each step reads counted as new to L1."""
    *_, rows, own, vectors = register_tile(depthwise(96, 20, 7), machine).sizes
    assert (rows, vectors) == (1, 1)
    assert own >= 7


@pytest.mark.parametrize(("window", "after"), [(7, 37), (3, 19), (5, 23)])
def test_depthwise_rows_that_no_tile_divides_overlap(window, after):
    """37 columns of 7x7 took 2.3 times as long, tile by tile of one element (Xeon; 2.4 on AVX2)."""
    sch = depthwise_schedule(96, after + window - 1, window)
    tile = joined_tile(stages_of(sch)[0], AVX512)
    assert (tile.first, tile.last) == (2, 3)
    assert tile.size * tile.count < 1.1 * after
    (joined, *_) = stages_of(join_tiles(sch, AVX512))
    *_, tiles, columns, _ = register_tile(joined, AVX512).sizes
    assert (tiles, columns) == (1, tile.size)


@pytest.mark.parametrize("channels", [120, 336])
def test_depthwise_tiles_do_not_overlap_along_channels(channels):
    """144 channels as five pieces of 32 took three times as long as 9 of 16 (AVX2)."""
    assert joined_tile(depthwise(channels, 30), AVX2) is None


@pytest.mark.parametrize(("channels", "count"), [(162, 11), (300, 19), (120, 8)])
def test_depthwise_channels_that_no_vector_divides_overlap(channels, count):
    """162 channels in vectors of two took three times as long (ReXNet)."""
    tile = joined_tile(depthwise(channels, 30), AVX512)
    assert (tile.size, tile.count) == (16, count)


@pytest.mark.parametrize("channels", [20, 40])
def test_few_depthwise_channels_are_in_short_vectors(channels):
    assert joined_tile(depthwise(channels, 30), AVX512) is None


def product(rows, steps, panels, lanes=LANES):
    """The stage of a product of rows and weights in panels of ``lanes`` columns."""
    data, weights = te.placeholder((rows, steps), name="data"), te.placeholder((panels, steps, lanes), name="weights")
    k = te.reduce_axis((0, steps))
    result = te.compute((panels, rows, lanes), lambda o, n, i: te.sum(data[n, k] * weights[o, k, i], axis=k))
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    return stage


def test_weights_from_memory_are_read_once():
    """16 rows of a Winograd product: a tile of all rows took 0.37 ms, four tiles of four 0.48 (ResNet-50)."""
    streamed, cached = product(16, 256, 256), product(16, 256, 16)
    assert register_tile(streamed, AVX512).sizes == (1, 16, 1)
    assert register_tile(cached, AVX512).sizes[1] < 16
    part = streamed.within([16, 16, LANES])  # of a tile of several stages, whose next one finds them in the cache
    assert register_tile(part, AVX512).sizes == register_tile(cached, AVX512).sizes


def test_one_accumulator_is_not_as_good_as_some():
    """One row by 320 by 1000 in blocks of 8: 44 us with one, 20 with five, in L2; from memory both take as long."""
    assert math.prod(register_tile(product(1, 320, 125, lanes=8), AVX512).sizes) > 1


def test_a_long_reduction_is_not_cut_into_single_steps():
    """131 steps have no other divisors; each piece would read and write its accumulators."""
    stage = product(4, 131, 9)
    small = with_small_caches(AVX2)
    assert reduction_pieces(stage, register_tile(stage, small), small) == 1


@pytest.mark.parametrize(("size", "is_cut"), [(9, True), (19, True), (58, False)])
def test_windows_of_few_elements_are_cut_in_pieces(size, is_cut):
    """512 channels at 7x7 and 3x3: 0.85 ms with panels that no cache holds, 0.7 in pieces (ResNet-50, AVX-512)."""
    stage = convolution(512, size, kernel=3, outputs=32)
    assert (reduction_pieces(stage, register_tile(stage, AVX512), AVX512) > 1) == is_cut


@pytest.mark.parametrize(("rows", "steps"), [(128, 256), (1000, 1024)], ids=["few rows", "many rows"])
def test_pieces_of_panels_that_few_rows_share_are_small(rows, steps):
    """3072 steps for 128 rows: 1.7 ms in pieces of 1024, 1.5 in pieces of 256 (BERT, AVX-512)."""
    stage = product(rows, 3072, 48)
    pieces = reduction_pieces(stage, register_tile(stage, AVX512), AVX512)
    assert 3072 // pieces <= steps
    assert 3072 // pieces > steps // 2


def test_accumulators_leave_registers_for_what_is_broadcast():
    """LLVM put one of 2 by 14 on the stack in every step: 304 us, 244 with 2 by 7 (3x3 with strides, 32 channels)."""
    stage = convolution(32, 114, kernel=3, stride=2, outputs=2)
    assert math.prod(register_tile(stage, AVX512).sizes) < 28
    assert math.prod(register_tile(convolution(256, 56, outputs=1), AVX512).sizes) == 28  # nothing is held for another


def test_no_more_streams_than_the_hardware_follows():
    """One row by 960 by 1280, from memory: 20 panels side by side took 145 us, ten 117."""
    one, many = product(1, 960, 80), product(240, 960, 80)
    assert register_tile(one, AVX512).sizes[0] <= 12
    assert math.prod(register_tile(many, AVX512).sizes) > 12


@pytest.mark.parametrize(("extent", "lanes"), [(700, 4), (196, 4), (784, 8), (49, 7)])
def test_sums_along_rows_take_vectors_that_are_one_load(extent: int, lanes: int) -> None:
    """Vectors of 7 elements, which LLVM puts together from three loads, took twice as long along rows of 700."""
    x = te.placeholder((512, extent), "float32", name="x")
    k = te.reduce_axis((0, extent))
    sums = te.compute((512,), lambda i: te.sum(x[i, k], axis=k))
    (stage,) = stages_of(new_schedule(te.create_prim_func([x, sums], index_dtype_override="int64")))
    tile = lane_tile(stage, AVX2)
    assert tile is not None
    assert tile.lanes == lanes or (lanes == 8 and tile.lanes % 8 == 0)


def sliding(columns):
    """The stage of a depthwise convolution of 5x5, channels first, ``columns`` after it."""
    data = te.placeholder((96, columns + 4, columns + 4), name="data")
    weights = te.placeholder((96, 5, 5), name="weights")
    y, x = te.reduce_axis((0, 5)), te.reduce_axis((0, 5))

    def element(c, h, w):
        return te.sum(data[c, h + y, w + x] * weights[c, y, x], axis=[y, x])

    result = te.compute((96, columns, columns), element, name="sliding")
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    return stage


@pytest.mark.parametrize(
    ("machine", "columns", "size"), [(AVX512, 37, 8), (AVX512, 29, 16), (AVX2, 37, 8), (AVX2, 19, 4)]
)
def test_depthwise_rows_that_long_vectors_do_not_fit_have_short_ones(machine, columns, size):
    """37 columns were done one by one, as vectors of 16 compute 48: six times as long as ONNX Runtime."""
    tile = joined_tile(sliding(columns), machine)
    assert tile is not None
    assert (tile.first, tile.size, tile.count) == (2, size, -(-columns // size))


@pytest.mark.parametrize(("steps", "most"), [(1024, 8), (2048, 8), (3072, 8), (512, 16)])
@pytest.mark.parametrize("rows", [240, 308])
def test_rows_that_lie_in_the_same_sets_of_l1_fit_its_ways(rows, steps, most):
    """Rows that are powers of two apart: 12 of 4096 bytes took 1.15 times as long as 8, and 28 five times as long."""

    def rows_at_once(stage):
        joined = joined_tile(stage, HALVES)
        return joined.size if joined else register_tile(stage, HALVES).sizes[1]

    assert rows_at_once(product(rows, steps, 16)) <= most
    if most == 8:
        assert rows_at_once(product(rows, steps - LANES, 16)) > most


@pytest.mark.parametrize("columns", [512, 1024, 3072])
def test_rows_of_weights_a_page_apart_are_read_in_long_pieces(columns):
    """One row times weights as they are: tiles of one vector took 3.5 times as long as tiles of 16 (256 x 1024)."""
    data, weights = te.placeholder((1, 256), name="data"), te.placeholder((256, columns), name="weights")
    k = te.reduce_axis((0, 256))
    result = te.compute((1, columns), lambda n, i: te.sum(data[n, k] * weights[k, i], axis=k))
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    tile = register_tile(stage, AVX512)
    assert tile.lanes * tile.sizes[-1] >= 8 * LANES


@pytest.mark.parametrize("machine", [AVX512, HALVES])
def test_squares_are_read_once(machine):
    """Each group of channels had a pass of its own, with one sum: variances took four times as long as means."""
    data, mean = te.placeholder((4096, 64), name="data"), te.placeholder((8,), name="mean")
    place, own = te.reduce_axis((0, 4096), name="place"), te.reduce_axis((0, 8), name="own")

    def square(group):
        off = data[place, group * 8 + own] - mean[group]
        return te.sum(off * off, axis=[place, own])

    sums = te.compute((8,), square, name="squares")
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, mean, sums], index_dtype_override="int64")))
    assert lane_tile(stage, machine).sizes == (8, 1)


@pytest.mark.parametrize(("steps", "most"), [(768, 6), (1024, 6), (760, 12)])
def test_panels_that_lie_in_the_same_sets_of_l1_are_fewer_than_its_ways(steps, most):
    """One row by 768 by 3072: 12 panels of 48 KiB side by side took 137 us, six 102 (Zen 4)."""
    panels = register_tile(product(1, steps, 192), HALVES).sizes[0]
    assert most // 2 < panels <= most


@pytest.mark.parametrize(("steps", "most"), [(1024, 3), (1040, 27)])
def test_rows_of_weights_that_lie_in_the_same_sets_of_l1_are_fewer_than_its_ways(steps, most):
    """One row by 1024 by 2187, by the weights' rows: 27 of 4096 bytes at once took 205 us, three 105 (Zen 4)."""
    data, weights = te.placeholder((1, steps), name="data"), te.placeholder((2187, steps), name="weights")
    k = te.reduce_axis((0, steps))
    result = te.compute((1, 2187), lambda n, j: te.sum(data[n, k] * weights[j, k], axis=k))
    (stage,) = stages_of(new_schedule(te.create_prim_func([data, weights, result], index_dtype_override="int64")))
    tile = lane_tile(stage, HALVES)
    assert (tile.lanes, tile.sizes) == (LANES, (1, most, 1))


def test_one_row_by_weights_in_l2_has_several_accumulators():
    """No tile finds a panel in L1 that another has read: 256 by 512 took 7.6 us with one vector, 5.1 with four."""
    assert math.prod(register_tile(product(1, 256, 32), HALVES).sizes) == 4
