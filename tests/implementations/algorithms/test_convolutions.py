"""Algorithms compute what the convolution computes, and what is no convolution is not taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_calls import called, called_transposed, calls_of, error, recognised
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te, tirx
from tvm.relax import op

from eqsat_layout.implementations.algorithms import ALGORITHMS, convolution_of
from eqsat_layout.implementations.algorithms.winograd import matrices
from eqsat_layout.tir.signature import analyse

LAYOUTS = (("NCHW", "OIHW"), ("NHWC", "OHWI"), ("NHWC", "HWIO"))


@pytest.mark.parametrize(("tile", "window"), [(2, 3), (4, 3), (3, 2), (3, 4), (2, 5), (4, 5), (2, 7)])
def test_the_matrices_filter(tile: int, window: int) -> None:
    rng = np.random.default_rng(tile)
    d, g = rng.standard_normal(tile + window - 1), rng.standard_normal(window)
    back, weigh, forth = matrices(tile, window)
    np.testing.assert_allclose(back @ ((weigh @ g) * (forth @ d)), np.correlate(d, g, "valid"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("algorithm", "bound"), [("F(2,3)", 3e-6), ("F(4,3)", 3e-5), ("im2col", 1e-6)])
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_the_result_is_the_convolution(algorithm: str, bound: float, layouts: tuple[str, str]) -> None:
    attrs = {"padding": [1, 0, 2, 1], "data_layout": layouts[0], "kernel_layout": layouts[1]}
    call, params = called((2, 8, 9, 14), (12, 8, 3, 3), **attrs)
    (own,) = [a for a in ALGORITHMS if algorithm in a.name]
    found = error(call, params, own)
    assert found is not None
    assert found < bound


@pytest.mark.parametrize(
    ("algorithm", "window", "bound"),
    [
        ("F(2,3)", (1, 3), 3e-6),
        ("F(4,3)", (3, 1), 3e-5),
        ("F(3,2)", (2, 2), 3e-6),
        ("F(3,2)", (1, 2), 3e-6),
        ("F(3,4)", (4, 4), 3e-5),
        ("F(3,4)", (4, 1), 3e-5),
        ("F(2,5)", (5, 5), 3e-5),
        ("F(2,5)", (5, 1), 3e-5),
        ("F(2,7)", (1, 7), 3e-5),
        ("F(2,7)", (7, 1), 3e-5),
    ],
)
@pytest.mark.parametrize("layouts", LAYOUTS[:2])
def test_windows_of_other_sizes(
    algorithm: str, window: tuple[int, int], bound: float, layouts: tuple[str, str]
) -> None:
    attrs = {"padding": [w // 2 for w in window], "data_layout": layouts[0], "kernel_layout": layouts[1]}
    call, params = called((2, 8, 9, 14), (12, 8, *window), **attrs)
    (own,) = [a for a in ALGORITHMS if algorithm in a.name]
    found = error(call, params, own)
    assert found is not None
    assert found < bound


@given(
    size=st.tuples(st.integers(3, 11), st.integers(3, 11)),
    channels=st.tuples(st.sampled_from([1, 3, 4, 16]), st.sampled_from([1, 4, 16])),
    padding=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    batch=st.integers(1, 2),
    algorithm=st.sampled_from(ALGORITHMS),
)
@settings(max_examples=tries(12), deadline=None)
def test_any_shape(size: Any, channels: Any, padding: Any, batch: int, algorithm: Any) -> None:
    call, params = called((batch, channels[0], *size), (channels[1], channels[0], 3, 3), padding=padding)
    found = error(call, params, algorithm)
    assert found is None or found < 3e-5


ONE_AND_THREE_AXES = [
    pytest.param((17,), (3,), {"padding": 2}, {"winograd F(2,3)", "winograd F(4,3)", "im2col"}, id="1-D"),
    pytest.param((17,), (5,), {"padding": 2}, {"winograd F(2,5)", "im2col"}, id="1-D, longer"),
    pytest.param((17,), (3,), {"strides": 2, "dilation": 2}, {"im2col"}, id="1-D with strides"),
    pytest.param((9,), (3,), {"padding": 8, "dilation": 8}, {"im2col", "taps apart"}, id="1-D, mostly padding"),
    pytest.param((15,), (3,), {"groups": 2, "padding": 1}, {"groups", "groups of 8"}, id="1-D in groups"),
    pytest.param((4, 6, 7), (3, 3, 3), {"padding": 1}, {"winograd F(2,3)", "winograd F(4,3)", "im2col"}, id="3-D"),
    pytest.param(
        (5, 6, 7), (1, 3, 3), {"padding": [0, 1, 1]}, {"winograd F(2,3)", "winograd F(4,3)", "im2col"}, id="flat"
    ),
    pytest.param(
        (6, 4, 5), (3, 1, 1), {"padding": [1, 0, 0]}, {"winograd F(2,3)", "winograd F(4,3)", "im2col"}, id="deep"
    ),
    pytest.param(
        (7, 6, 7),
        (3, 3, 3),
        {"strides": [2, 1, 1]},
        {"winograd F(2,3)", "winograd F(4,3)", "im2col"},
        id="deep strides",
    ),
    pytest.param((6, 6, 7), (3, 3, 3), {"strides": 2, "padding": 1}, {"im2col"}, id="3-D with strides"),
]


@pytest.mark.parametrize(("size", "window", "attrs", "names"), ONE_AND_THREE_AXES)
def test_convolutions_along_one_axis_and_three(size: Any, window: Any, attrs: Any, names: set[str]) -> None:
    groups = attrs.get("groups", 1)
    shapes = ((2, 8, *size), (8, 8 // groups, *window))
    params = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in zip("xw", shapes, strict=True)]
    function = op.nn.conv1d if len(size) == 1 else op.nn.conv3d
    call = relax.BlockBuilder().normalize(function(*params, **attrs))
    conv = recognised(call)
    assert (conv.size, conv.windows, conv.groups) == (size, window, groups)
    own = [a for a in ALGORITHMS if a.of(conv) is not None]
    assert {a.name for a in own} == names
    for algorithm in own:
        found = error(call, params, algorithm)
        assert found is not None
        assert found < 3e-5


@given(
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilation=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    data=st.data(),
)
@settings(max_examples=tries(20), deadline=None)
def test_windows_that_mostly_meet_padding(size: Any, window: Any, dilation: Any, strides: Any, data: Any) -> None:
    reach = [(w - 1) * d for w, d in zip(window, dilation, strict=True)]
    padding = [data.draw(st.integers(max(0, r + 1 - s), r)) for s, r in zip(size * 2, reach * 2, strict=True)]
    attrs = {"padding": padding, "dilation": list(dilation), "strides": list(strides)}
    call, params = called((2, 3, *size), (5, 3, *window), **attrs)
    (own,) = [a for a in ALGORITHMS if a.name == "taps apart"]
    found = error(call, params, own)
    assert found is None or found < 1e-5


@pytest.mark.parametrize(("dilation", "kernels"), [(1, 0), (3, 9), (6, 1)])
def test_taps_that_meet_no_data_are_left_out(dilation: int, kernels: int) -> None:
    call, _ = called((1, 8, 4, 4), (8, 8, 3, 3), padding=[dilation] * 4, dilation=[dilation] * 2)
    (own,) = [a for a in ALGORITHMS if a.name == "taps apart"]
    module = own.of(recognised(call))
    assert (module is not None) == (kernels > 0)
    if module is not None:
        products = [c for c in calls_of(module) if "tap_product" in str(c.args[0])]
        assert len(products) == kernels


ONE_PLACE = [
    pytest.param(called, (1, 8, 1, 1), (8, 8, 3, 3), {"padding": 1}, 1, id="a pixel"),
    pytest.param(called, (2, 8, 1, 3), (8, 8, 3, 3), {"padding": 1}, 3, id="a row of two images"),
    pytest.param(called, (1, 8, 2, 2), (8, 8, 4, 4), {"padding": 1, "strides": 2}, 4, id="its middle"),
    pytest.param(called, (1, 3, 3, 3), (8, 3, 3, 3), {"padding": 5, "dilation": 6}, 1, id="dilated"),
    pytest.param(
        called, (1, 8, 1, 1), (8, 8, 3, 3), {"padding": 1, "data_layout": "NHWC", "kernel_layout": "HWIO"}, 1, id="NHWC"
    ),
    pytest.param(called_transposed, (1, 8, 1, 1), (8, 4, 4, 4), {"padding": 1, "strides": 2}, 4, id="transposed"),
    pytest.param(called_transposed, (1, 8, 1, 1), (8, 4, 3, 3), {"padding": 1}, 1, id="back to a pixel"),
]


@pytest.mark.parametrize(("make", "size", "kernel", "attrs", "taps"), ONE_PLACE)
def test_a_window_that_stands_at_one_place(make: Any, size: Any, kernel: Any, attrs: Any, taps: int) -> None:
    """The index has no variable of the place then: 3x3 over a pixel took 11 times as long as ONNX Runtime, .99 now."""
    call, params = make(size, kernel, **attrs)
    conv = recognised(call)
    own = {a.name: a for a in ALGORITHMS if a.of(conv) is not None}
    assert sum("tap_product" in str(c.args[0]) for c in calls_of(own["taps apart"].of(conv))) == taps
    for algorithm in own.values():
        found = error(call, params, algorithm)
        assert found is not None
        assert found < 3e-5


def test_a_window_over_all_of_the_data_has_the_channels_that_are_many() -> None:
    """Nothing tells them from the window: the sum goes over both."""
    conv = recognised(called((1, 40, 3, 5), (6, 40, 3, 5))[0])
    assert (conv.channels, conv.windows, conv.out_size) == ((40, 6), (3, 5), (1, 1))


@pytest.mark.parametrize("condition", ["inside", "odd columns too", "less"])
def test_only_zeros_around_the_data_are_padding(condition: str) -> None:
    """What a block zeroes is evaluated: conditions were taken for those of padding, whatever they said."""
    data = te.placeholder((1, 4, 6, 6), name="x")
    kernel = te.placeholder((4, 4, 3, 3), name="w")

    def padded(n: Any, c: Any, h: Any, w: Any) -> Any:
        inside = [h >= 1, h < 7, w >= 1, w < 7]
        inside += {"inside": [], "odd columns too": [tirx.floormod(w, 2) == 0], "less": [h < 6]}[condition]
        return tirx.if_then_else(tirx.all(*inside), data[n, c, h - 1, w - 1], tirx.const(0.0, "float32"))

    around = te.compute((1, 4, 8, 8), padded, name="around")
    c, r, q = te.reduce_axis((0, 4), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "q")
    result = te.compute(
        (1, 4, 6, 6), lambda n, o, h, w: te.sum(around[n, c, h + r, w + q] * kernel[o, c, r, q], axis=[c, r, q])
    )
    computation = analyse(te.create_prim_func([data, kernel, result], index_dtype_override="int64"))
    assert (convolution_of(computation) is not None) == (condition == "inside")


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(
    ("channels", "groups", "window", "names"),
    [
        pytest.param((16, 16), 4, (3, 3), ["groups", "groups of 8", "groups of 16"], id="of four"),
        pytest.param((24, 24), 3, (3, 3), ["groups"], id="an odd number of eight"),
        pytest.param((8, 32), 2, (1, 3), ["groups"], id="more outputs than inputs"),
        pytest.param((24, 8), 4, (3, 3), ["groups", "groups of 8"], id="fewer outputs than inputs"),
        pytest.param((16, 8), 4, (1, 1), ["groups", "groups of 8"], id="no window"),
    ],
)
def test_groups_are_an_axis(channels: Any, groups: int, window: Any, names: list[str], layouts: Any) -> None:
    attrs = {"padding": [w // 2 for w in window], "groups": groups} | dict(
        zip(("data_layout", "kernel_layout"), layouts, strict=True)
    )
    inputs, outputs = channels
    call, params = called((2, inputs, 7, 9), (outputs, inputs // groups, *window), **attrs)
    conv = recognised(call)
    assert (conv.channels, conv.groups, conv.windows) == (channels, groups, window)
    own = [a for a in ALGORITHMS if a.of(conv) is not None]
    assert [a.name for a in own] == names
    for algorithm in own:
        found = error(call, params, algorithm)
        assert found is not None
        assert found < 1e-6


def test_groups_with_strides_and_dilation() -> None:
    attrs = {"strides": [2, 1], "dilation": [1, 2], "padding": [1, 2, 0, 1], "groups": 2}
    call, params = called((1, 8, 9, 10), (8, 4, 3, 3), **attrs)
    for algorithm in ALGORITHMS[-3:]:
        found = error(call, params, algorithm)
        assert found is None or found < 1e-6


def test_strides_and_dilation_are_seen() -> None:
    call, _ = called((1, 4, 20, 21), (6, 4, 3, 2), strides=[2, 1], dilation=[1, 3], padding=[1, 2, 0, 1])
    conv = recognised(call)
    assert (conv.strides, conv.dilation, conv.padding) == ((2, 1), (1, 3), ((1, 0), (2, 1)))
    assert (conv.channels, conv.windows, conv.size) == ((4, 6), (3, 2), (20, 21))
    assert [a.name for a in ALGORITHMS if a.of(conv) is not None] == ["im2col"]


def test_what_is_no_convolution_is_not_taken_for_one() -> None:
    def var(*shape: int) -> Any:
        return relax.Var("v", relax.TensorType(shape, "float32"))

    builder = relax.BlockBuilder()
    others = [
        op.matmul(var(8, 8), var(8, 8)),
        op.nn.conv2d(var(1, 8, 8, 8), var(8, 1, 3, 3), groups=8),
        op.nn.max_pool2d(var(1, 8, 8, 8), [3, 3]),
        op.nn.conv2d(var(1, 2, 8, 8, 4), var(2, 2, 3, 3, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o"),
    ]
    assert [recognised(builder.normalize(call)) for call in others] == [None] * len(others)


@given(
    axes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=tries(20), deadline=None)
def test_axes_with_strides_and_without_a_window(axes: Any, data: Any) -> None:
    """All of the data was laid out anew for the few elements that are read: no algorithm took such a convolution."""
    size, window, stride = zip(*axes, strict=True)
    padding = [data.draw(st.integers(0, 1)) if w > 1 else 0 for w in (*window, *window)]
    size = tuple(max(s, w) for s, w in zip(size, window, strict=True))
    params = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (2, 3, *size)), ("w", (5, 3, *window)))
    ]
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(size)]
    call = relax.BlockBuilder().normalize(function(*params, strides=list(stride), padding=padding))
    conv = recognised(call)
    (own,) = [a for a in ALGORITHMS if a.name == "subsampled"]
    is_offered = conv is not None and own.of(conv) is not None
    is_read_in_part = any(w == 1 and s > 1 for w, s in zip(window, stride, strict=True))
    assert is_offered or not is_read_in_part or 1 in (*size, *call_sizes(call))
    if is_offered:
        found = error(call, params, own)
        assert found is not None
        assert found < 1e-5


def call_sizes(call: Any) -> list[int]:
    """Of the result, without batch and channels."""
    return [int(extent) for extent in list(call.ty.shape)[2:]]
