"""Depthwise convolutions: neighbours share what they load."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from programs import constant, program
from targets.cuda.cases import Case, conv, matmul
from targets.cuda.running import H100, Kernels, in_double_precision, inputs_of, relative_error, result_of
from targets.cuda.simulating import check
from tvm import relax, te, tirx
from tvm.relax import op

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.window_kernel import window_kernel

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6}


def depthwise(size: tuple[int, int], channels: int, window: tuple[int, int], **options: Any) -> Case:
    return conv(size, channels, channels, window, groups=channels, **options)


CASES = {
    "3x3": depthwise((8, 14), 24, (3, 3), pad=1),
    "strides": depthwise((9, 15), 16, (3, 3), pad=1, stride=2, batch=2),
    "without a pad": depthwise((7, 10), 8, (5, 5)),
    "six channels": depthwise((6, 8), 6, (3, 3), pad=1),
    "channels first": depthwise((9, 16), 6, (3, 3), pad=1, stride=2, layout="NCHW", batch=2),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in CASES), *(("3x3", d) for d in TOLERANCES), ("channels first", "float16")],
)
def test_windows_of_each_channel(name: str, dtype: str) -> None:
    func, twin = CASES[name](dtype, "float32", dtype), CASES[name]("float64", "float64", "float64")
    kernels = Kernels(window_kernel(func, H100))
    arrays = inputs_of(func)
    first = result_of(kernels, arrays)
    assert relative_error(first, in_double_precision(twin, arrays)) < TOLERANCES[dtype]
    for order in (1, 2):
        assert (result_of(kernels, arrays, order) == first).all()


def test_neighbours_share_what_they_load() -> None:
    """A place of 3x3 has 9 elements of data and 9 weights; two thirds of the former are its neighbours' too."""
    func = depthwise((56, 56), 96, (3, 3), pad=1, batch=32)("float16", "float32", "float16")
    (source,) = Kernels(window_kernel(func, H100)).sources.values()
    loads = len(re.findall(r"= \*\(uint4\*\)\(\w_ptr", source)) * 3  # a loop over the rows of a window
    places = len(re.findall(r"\*\(uint4\*\)\(d_ptr[^;]*= ", source))
    assert places > 1
    assert loads / places < 8


def test_a_row_of_one_channel_is_loaded_by_16_bytes() -> None:
    """Channels first, windows of every other place: halves came one by one, nine for each place."""
    func = depthwise((56, 56), 144, (3, 3), pad=1, stride=2, layout="NCHW")("float16", "float32", "float16")
    (source,) = Kernels(window_kernel(func, H100)).sources.values()
    assert "= *(uint4*)(x_ptr" in source
    assert "*(half4*)(d_ptr" in source


@pytest.mark.parametrize("window", [3, 7])
def test_a_network_s_depthwise_convolution_is_one_launch(window: int) -> None:
    """Those of ConvNeXt add up 49 products, and went to tensor cores, of which they used one row in 32."""

    def body(builder: Any, x: Any) -> Any:
        weight = np.random.default_rng(0).standard_normal((16, 1, window, window)).astype("float32")
        y = op.nn.conv2d(x, relax.const(weight), padding=window // 2, groups=16, data_layout="NHWC")
        return builder.emit(op.nn.relu(builder.emit(y)))

    (source,) = check(program(body, (1, 8, 8, 16))).sources.values()
    assert "float4" in source
    assert "mma.sync" not in source


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (matmul(8, 8, 8), "both operands depend on the place"),
        (depthwise((7, 9), 16, (3, 3), layout="NCHW"), "no windows slide"),
        (depthwise((9, 12), 8, (3, 3), pad=2, dilation=2), "no windows slide"),
        (depthwise((1, 80), 8, (1, 71)), "too large"),
    ],
)
def test_refusals_say_why(case: Case, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        window_kernel(case("float16", "float32", "float16"), H100)


def numbered_through(dtype: str, sums: str, result: str) -> Any:
    """Windows of 3x3 over two images of 6x8 whose places lie along one axis."""
    images, rows, columns, channels = 2, 6, 8, 16
    x = te.placeholder((images * rows * columns, channels), dtype, name="x")
    w = te.placeholder((channels, 3, 3), dtype, name="w")
    r, s = (te.reduce_axis((0, 3), name) for name in "rs")

    def total(p: Any, c: Any) -> Any:
        row, column = p // columns % rows + r - 1, p % columns + s - 1
        inside = tirx.all(row >= 0, row < rows, column >= 0, column < columns)
        value = tirx.if_then_else(inside, x(p + (r - 1) * columns + s - 1, c), tirx.const(0, dtype))
        return te.sum(value.astype(sums) * w(c, r, s).astype(sums), [r, s])

    y = te.compute((images * rows * columns, channels), total, name="y")
    z = te.compute(y.shape, lambda *at: tirx.max(y(*at), tirx.const(0, sums)).astype(result), name="z")
    return te.create_prim_func([x, w, z])


def test_places_that_are_numbered_through_are_rows_and_columns() -> None:
    """Layouts of ConvNeXt's norms are such; nothing slid along one axis, and each element was loaded for each sum."""
    func = numbered_through("float16", "float32", "float16")
    kernels = Kernels(window_kernel(func, H100))
    arrays = inputs_of(func)
    twin = numbered_through("float64", "float64", "float64")
    assert relative_error(result_of(kernels, arrays), in_double_precision(twin, arrays)) < TOLERANCES["float16"]


def test_what_another_kernel_made_is_added_where_launches_overlap() -> None:
    """As in ConvMixer: registers that it is loaded to ahead were named, and nothing made room for them."""

    def body(builder: Any, x: Any) -> Any:
        first = builder.emit(op.nn.max_pool2d(x, (3, 3), padding=(1, 1), layout="NHWC"))
        y = builder.emit(op.nn.conv2d(first, constant(16, 1, 3, 3), padding=1, groups=16, data_layout="NHWC"))
        return builder.emit(op.add(builder.emit(op.nn.relu(y)), first))

    check(program(body, (1, 8, 8, 16)), {"kind": "cuda", "arch": "sm_90"})
