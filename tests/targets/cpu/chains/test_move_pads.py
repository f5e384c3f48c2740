"""Pads move in front of products whose results they pad: the same numbers, one kernel, no conditions in its loops."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from targets.machines import AVX512, NEON, built
from tvm import relax, te, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.cpu.chains.join_calls import join_chains
from eqsat_layout.targets.cpu.chains.move_pads import pads_first
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.schedule import schedule_module
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of

nn, op = relax.op.nn, relax.op
MACHINES = [AVX512, NEON]


def product(x, w, *, window=1):
    """Pixels times a matrix; with a window of three rows if asked for."""
    height, width, depth = (int(e) for e in x.shape)
    k, r = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, window), "r")
    shape = (height - window + 1, width, int(w.shape[-1]))
    return te.compute(shape, lambda h, v, c: te.sum(x[h + r, v, k] * w[k, c], axis=[k, r]), name="product")


def with_itself(x):
    """Pixels times the first ones of all rows."""
    height, width, depth = (int(e) for e in x.shape)
    k = te.reduce_axis((0, depth), "k")
    return te.compute((height, width, height), lambda h, v, c: te.sum(x[h, v, k] * x[c, 0, k], axis=k), name="product")


def ending(y, bias, other=None):
    def element(h, v, c):
        value = te.max(y[h, v, c] + bias[c], tirx.const(0, y.dtype))
        return value + other[h, v, c] if other is not None else value

    return te.compute(y.shape, element, name="ending")


def padded(y, before, after, value=0.0):
    height, width, channels = (int(e) for e in y.shape)
    (top, left), (bottom, right) = before, after

    def element(h, v, c):
        inside = tirx.all(h >= top, h < height + top, v >= left, v < width + left)
        return tirx.if_then_else(inside, y[h - top, v - left, c], tirx.const(value, y.dtype))

    return te.compute((height + top + bottom, width + left + right, channels), element, name="pad")


def windows(p, f, stride=1):
    height, width, channels = (int(e) for e in p.shape)
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j")
    shape = ((height - 3) // stride + 1, (width - 3) // stride + 1, channels)
    return te.compute(
        shape, lambda h, v, c: te.sum(p[h * stride + i, v * stride + j, c] * f[i, j, c], axis=[i, j]), name="windows"
    )


def function_of(body, *shapes, dtype="float32"):
    params = [te.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    return te.create_prim_func([*params, body(*params)], index_dtype_override="int64")


def result_of(func, inputs):
    library = unscheduled_library({"main": func})
    out = tvm.runtime.tensor(np.full([int(e) for e in func.params[-1].ty.shape], np.nan, "float32"))
    library["main"](*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


@settings(max_examples=tries(25), deadline=None)
@given(
    size=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    before=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    after=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    stride=st.sampled_from([1, 2]),
    value=st.sampled_from([0.0, -1.5]),
)
def test_the_numbers_are_the_same(arrays, size, before, after, stride, value):
    """The bias makes what the product gives at the border something else than the pad."""
    shapes = (*size, 5), (5, 8), (8,), (3, 3, 8)
    func = function_of(
        lambda x, w, b, f: windows(padded(ending(product(x, w), b), before, after, value), f, stride), *shapes
    )
    moved = pads_first(new_schedule(func))
    assert moved is not None
    assert chain_of(stages_of(moved), has_pads=True).is_regular
    inputs = arrays(*shapes)
    np.testing.assert_allclose(result_of(moved.mod["main"], inputs), result_of(func, inputs), rtol=1e-5, atol=1e-5)


def around(y):
    return padded(y, (1, 1), (1, 1))


SHAPES = (6, 6, 5), (5, 8), (8,), (3, 3, 8)


@pytest.mark.parametrize(
    ("body", "shapes", "dtype"),
    [
        pytest.param(
            lambda x, w, b, f: windows(around(ending(product(x, w, window=3), b)), f), SHAPES, "float32", id="window"
        ),
        pytest.param(
            lambda x, w, b, f, o: windows(around(ending(product(x, w), b, o)), f),
            (*SHAPES, (6, 6, 8)),
            "float32",
            id="an operand that has no border",
        ),
        pytest.param(
            lambda x, w, b, f: windows(around(ending(product(product(x, w), w), b)), f),
            ((6, 6, 8), (8, 8), (8,), (3, 3, 8)),
            "float32",
            id="made in the same function",
        ),
        pytest.param(lambda x, w, b, f: windows(around(ending(product(x, w), b)), f), SHAPES, "int32", id="integers"),
        pytest.param(
            lambda x, b, f: windows(around(ending(with_itself(x), b)), f),
            ((6, 6, 5), (6,), (3, 3, 6)),
            "float32",
            id="an operand read in two ways",
        ),
        pytest.param(lambda x, w, b: ending(product(x, w), b), SHAPES[:3], "float32", id="no pad"),
        pytest.param(lambda x, w, b: around(ending(product(x, w), b)), SHAPES[:3], "float32", id="the result"),
    ],
)
def test_other_pads_stay(body, shapes, dtype):
    assert pads_first(new_schedule(function_of(body, *shapes, dtype=dtype))) is None


def inverted_bottleneck(emit, x, w, b, f, p):
    wide = emit(op.clip(emit(op.add(emit(nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO")), b)), 0, 6))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    narrow = emit(nn.conv2d(wide, f, strides=2, padding=1, groups=int(w.ty.shape[3]), **layouts))
    return emit(nn.conv2d(emit(op.clip(narrow, 0, 6)), p, data_layout="NHWC", kernel_layout="HWIO"))


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "neon"])
def test_expansion_depthwise_and_projection_are_one_kernel(make_module, unscheduled, run, arrays, machine):
    """MobileNetV2 of eight images takes a seventh less time since."""
    shapes = (1, 112, 112, 16), (1, 1, 16, 96), (96,), (3, 3, 96, 1), (1, 1, 96, 16)
    mod = make_module(inverted_bottleneck, *shapes)
    joined = join_chains(fuse(legalize(mod), Notes()), machine)
    functions = [f for f in joined.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(functions) == 1
    inputs = arrays(*shapes)
    got = run(built(schedule_module(joined, machine)), *inputs)
    np.testing.assert_allclose(got, unscheduled(legalize(mod), *inputs), atol=1e-3)
