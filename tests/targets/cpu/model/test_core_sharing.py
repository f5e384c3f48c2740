"""Cores share the rows of the data where these are more than the weights, else the weights; whatever the sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX512, built
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.targets.cpu.model.core_sharing import pieces_of, shared_tiles
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.structural import substitute

nn, op = relax.op.nn, relax.op


def machine_with(cores):
    return replace(AVX512, cores=cores)


def packed(emit, x, w):
    return emit(nn.conv2d(x, w, data_layout="NCHW16c", kernel_layout="OIHW16i16o"))


def packed_relu(emit, x, w):
    return emit(nn.relu(packed(emit, x, w)))


def depthwise(emit, x, w):
    return emit(nn.conv2d(x, w, groups=64, data_layout="NHWC", kernel_layout="HWOI"))


def scheduled(mod, cores):
    return schedule_module(fuse(legalize(mod), Notes()), machine_with(cores))


def the_parallel_loop(mod):
    """Its extent, and of every parameter: do the indices at which it is read inside depend on the loop?"""
    (func,) = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: loops.append(loop)))
    (parallel,) = [loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL]
    read = [False] * len(func.params)
    blocks: list[tvm.s_tir.SBlockRealize] = []
    tvm_ffi.structural_walk(parallel.body, (tvm.s_tir.SBlockRealize, blocks.append))
    for realize in blocks:
        values = dict(zip((axis.var for axis in realize.block.iter_vars), realize.iter_values, strict=True))
        loads: list[tvm.ir.TensorLoad] = []
        tvm_ffi.structural_walk(realize.block.body, (tvm.ir.TensorLoad, loads.append))
        for load in loads:
            placed = StageAccess(load.source, tuple(substitute(index, values) for index in load.indices))
            for number, param in enumerate(func.params):
                if load.source.same_as(param):
                    read[number] |= placed.uses(parallel.loop_var)
    return int(parallel.extent), read


@pytest.mark.parametrize("cores", [2, 4, 7])
def test_cores_take_rows_of_much_data(make_module, cores):
    mod = make_module(packed_relu, (1, 4, 28, 28, 16), (8, 4, 1, 1, 16, 16))
    extent, (data, weights, _) = the_parallel_loop(scheduled(mod, cores))
    assert (extent, data, weights) == (cores, True, False)


def test_data_beyond_the_second_cache_are_shared_in_pieces_that_fit(make_module):
    """Every panel of the weights would stream them otherwise: a convolution of eight images took half as long again."""
    mod = make_module(packed_relu, (8, 16, 28, 28, 16), (16, 16, 1, 1, 16, 16))
    extent, (data, weights, _) = the_parallel_loop(scheduled(mod, 2))
    assert (extent, data, weights) == (8, True, False)


def test_cores_take_panels_of_large_weights(make_module):
    mod = make_module(packed_relu, (1, 8, 7, 7, 16), (16, 8, 1, 1, 16, 16))
    _, (_, weights, _) = the_parallel_loop(scheduled(mod, 2))
    assert weights


def test_one_panel_that_is_long_leaves_no_core_idle(make_module):
    """Seven blocks of 672 channels are one panel, and too long to be done at once where others follow it."""
    mod = make_module(packed_relu, (1, 42, 14, 14, 16), (7, 42, 1, 1, 16, 16))
    extent, _ = the_parallel_loop(scheduled(mod, 2))
    assert extent > 1


def test_data_that_a_stride_skips_does_not_count(make_module):
    """Every fourth pixel of 28 x 28 is less than the weights, all of them are more."""

    def strided(emit, x, w):
        return emit(nn.conv2d(x, w, strides=2, data_layout="NCHW16c", kernel_layout="OIHW16i16o"))

    mod = make_module(strided, (1, 8, 28, 28, 16), (16, 8, 1, 1, 16, 16))
    _, (_, weights, _) = the_parallel_loop(scheduled(mod, 2))
    assert weights


@pytest.mark.parametrize(
    ("count", "cores", "wanted"), [(131, 2, 132), (33, 4, 36), (10, 2, 10), (9, 2, 9), (11, 2, 12), (5, 64, 5)]
)
def test_tiles_are_as_many_for_every_core(count, cores, wanted):
    assert shared_tiles(count, cores, machine_with(cores)) == wanted


@pytest.mark.parametrize(("count", "pieces", "wanted"), [(171, 4, 172), (171, 14, 176), (33, 14, 34), (200, 8, 200)])
def test_tiles_are_as_many_in_every_piece(count, pieces, wanted):
    """In more pieces than asked for, if fewer are computed twice then; in two where that is too many."""
    assert shared_tiles(count, pieces, machine_with(2)) == wanted


@pytest.mark.parametrize("cores", [2, 64, 100])
def test_pieces_are_as_many_for_every_core_however_many_there_are(make_module, cores):
    mod = make_module(packed, (8, 4, 28, 28, 16), (8, 4, 1, 1, 16, 16))
    (function,) = [f for f in fuse(legalize(mod), Notes()).functions.values() if isinstance(f, tirx.PrimFunc)]
    stage = next(stage for stage in stages_of(new_schedule(function)) if stage.is_reduction)
    pieces = pieces_of(stage, machine_with(cores))
    assert pieces.axes
    assert pieces.count >= cores
    assert pieces.count % cores == 0


@given(
    body=st.sampled_from([packed, packed_relu, depthwise]),
    size=st.tuples(st.integers(3, 40), st.integers(3, 40)),
    window=st.sampled_from([1, 3]),
    cores=st.integers(1, 9),
)
@settings(max_examples=tries(30))
def test_every_element_is_computed(make_module, unscheduled, run, arrays, body, size, window, cores):
    if body is depthwise:
        shapes = (1, *size, 64), (window, window, 64, 1)
    else:
        shapes = (1, 1, *size, 16), (3, 1, window, window, 16, 16)
    mod, inputs = make_module(body, *shapes), arrays(*shapes)
    got = run(built(scheduled(mod, cores)), *inputs)
    np.testing.assert_allclose(got, unscheduled(legalize(mod), *inputs), atol=1e-3)
