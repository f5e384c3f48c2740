"""What the OpenCL C of single kernels looks like: padding by the sampler, whole texels, operands loaded once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
import tvm
from programs import constant, program
from targets.device_cases import conv, nn
from targets.opencl.running import check
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.errors import Refused, TargetError
from eqsat_layout.maps import Format
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.serial import as_it_stands
from eqsat_layout.targets.opencl.kernels.lowering import lowered
from eqsat_layout.targets.opencl.loads import Loads
from eqsat_layout.tir.signature import analyse

SHAPE = (1, 16, 9, 9)


def frozen(layout: str) -> Any:
    """Three convolutions, the second of which reads and writes its data in ``layout``."""

    def body(builder: Any, x: Any) -> Any:
        for seed in range(3):
            x = builder.emit(nn.relu(conv(builder, x, seed, channels=16)))
        return x

    return program(body, SHAPE, frozen={"conv1": [layout, "OIHW4i4o"]})


def convolutions(found: Any) -> list[str]:
    """The OpenCL C of those that read images."""
    return [text for name, text in found.sources.items() if "conv2d" in name and "__read_only" in text]


@pytest.mark.parametrize(
    ("layout", "asks"),
    [("NCHW4c@global.texture", False), ("NHWC4c@global.texture-nhwc", True)],
    ids=["texture", "nhwc"],
)
def test_the_sampler_pads_rows_and_columns_that_have_no_other_axis(layout: str, asks: bool) -> None:
    """In ``texture-nhwc`` columns hold channels too: their ends, but not those of rows, are asked for."""
    kernels = convolutions(check(frozen(layout)))
    assert kernels
    for text in kernels:
        conditions = re.findall(r"if \((.*)\) \{\n *float4 v_", text)
        assert bool(conditions) == asks
        assert all(condition.count("<") == 2 for condition in conditions)


def test_a_work_item_loads_a_texel_once_for_all_it_is_multiplied_with() -> None:
    for text in convolutions(check(frozen("NCHW4c@global.texture"))):
        products = len(re.findall(r"(\w+_ptr\[\d+\]) = \(\1 \+", text))
        assert products > text.count("READ_IMAGEF(") - 1


def test_a_tile_is_an_array_of_vectors() -> None:
    """Compilers leave an array of floats in memory, and load and store each of its vectors."""
    for text in convolutions(check(frozen("NCHW4c@global.texture"))):
        assert re.search(r"float4 \w*local\w*\[\d+\];", text)
        assert not re.search(r"float \w*local\w*\[\d+\];", text)


def test_padding_with_another_number_is_asked_for() -> None:
    """The greatest of a window is not 0 where all of it is negative."""

    def body(builder: Any, x: Any) -> Any:
        y = conv(builder, x, channels=16)
        y = builder.emit(nn.max_pool2d(builder.emit(op.subtract(y, relax.const(100.0))), [3, 3], padding=[1, 1]))
        return conv(builder, y, 1, channels=16)

    check(program(body, SHAPE, frozen={"conv0": ["NCHW4c@global.texture", "OIHW4i4o"]}))


def test_a_kernel_that_would_write_a_part_of_a_texel_is_refused() -> None:
    """Whatever plans it: the other elements would be overwritten."""

    @T.prim_func(private=True, s_tir=True)
    def scattered(x: T.Buffer((8, 4, 4), "float32"), y: T.Buffer((8, 4, 4), "float32", scope="global.texture")) -> None:
        for i, j, k in T.grid(8, 4, 4):
            with T.sblock("y"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                y[a, b, 3 - c] = x[a, b, c]

    alone, _ = as_it_stands(scattered)
    with pytest.raises(Refused, match="no axis of y runs along the texels"):
        with_work_items(scattered)
    with pytest.raises(TargetError, match="kernel scattered writes a part of a texel"):
        lowered({"scattered": alone}, tvm.target.Target({"kind": "opencl", "device": "adreno"}))


SUMS: Final[dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]]] = {
    "all": (op.sum, (64, 300)),
    "rows_of_no_whole_group": (lambda x: op.max(x, axis=[-1]), (8, 1000)),
    "softmax": (op.nn.softmax, (4, 1000)),
    "pixels": (lambda x: op.mean(x, axis=[2, 3], keepdims=True), (1, 32, 28, 28)),
    "products": (lambda x: op.prod(x, axis=[0]), (500, 4)),
    "vector_times_matrix": (lambda x: op.matmul(x, constant(2048, 100)), (1, 2048)),
}


@pytest.mark.parametrize("name", SUMS)
def test_few_results_are_shared_by_work_items_where_their_order_is_free(name: str) -> None:
    emit, shape = SUMS[name]
    mod = program(lambda builder, x: builder.emit(emit(x)), shape)
    assert "barrier(" in check(mod).source
    assert "barrier(" not in check(mod, approx=False).source


LONG: Final[dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]]] = {
    "an image": (op.sum, (1, 3, 40, 37)),
    "moments of groups": (
        lambda x: nn.group_norm(
            x, constant(8), constant(8, seed=1), num_groups=2, channel_axis=1, axes=[2, 3], epsilon=1e-5
        ),
        (1, 8, 32, 32),
    ),
    "the place of the largest": (lambda x: op.astype(op.argmax(x, axis=-1), "int32"), (2, 6000)),
    "steps of a prime number": (lambda x: op.max(x, axis=[-1]), (2, 4099)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_reductions_with_few_results_are_cut_into_parts(name: str) -> None:
    """Eight work items added up the pixels of eight groups of channels, which a network for images has many of."""
    emit, shape = LONG[name]
    mod = program(lambda builder, x: builder.emit(builder.normalize(emit(x))), shape)
    function = check(mod).plan.function("main")
    groups = [math.prod(launch.groups) for launch in function.launches if math.prod(launch.items) == 64]
    assert (max(groups) > 8) == (name != "steps of a prime number")


def test_what_starts_from_a_number_of_its_own_is_no_shared_sum() -> None:
    """Each work item would start from it."""

    @T.prim_func(private=True, s_tir=True)
    def from_three(x: T.Buffer((1000,), "float32"), y: T.Buffer((1,), "float32")) -> None:
        for i, k in T.grid(1, 1000):
            with T.sblock("y"):
                v_i, v_k = T.axis.remap("SR", [i, k])
                with T.init():
                    y[v_i] = T.float32(3)
                y[v_i] = y[v_i] + x[v_k]

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(from_three, "from_three")
        return builder.emit(relax.call_tir(func, [x], relax.TensorType((1,), "float32")))

    assert "barrier(" not in check(program(body, (1000,))).source


@T.prim_func(private=True, s_tir=True)
def rows_four_times(
    x: T.Buffer((6, 14, 512, 4), "float32"), b: T.Buffer((4, 6), "float32"), y: T.Buffer((56, 512, 4), "float32")
) -> None:
    for i, j, k, a in T.grid(56, 512, 4, 6):
        with T.sblock("sum"):
            vi, vj, vk, va = T.axis.remap("SSSR", [i, j, k, a])
            with T.init():
                y[vi, vj, vk] = T.float32(0)
            y[vi, vj, vk] = y[vi, vj, vk] + x[va, vi // 4, vj, vk] * b[vi % 4, va]


def test_what_four_rows_share_is_loaded_once_for_them() -> None:
    """As when Winograd's results are put together: the index of rows is a quotient, which was taken to move."""
    launched = with_work_items(rows_four_times)
    text = lowered({"rows": launched}, tvm.target.Target("opencl")).sources["rows_kernel"]
    assert text.count("vload4") * 4 == text.count("vstore4")
    computation = analyse(rows_four_times)
    assert computation is not None
    found = Loads(computation, [Format.row_major((56, 512, 4))])
    assert found.of_buffer(computation.operands[0]) == 6 * 14 * 512 * 4


def test_the_difference_of_two_products_is_by_itself() -> None:
    """Drivers made one operation of it and a product: x * x - y * y was not 0 where x and y are equal."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        squares, others = (builder.emit(op.multiply(one, one)) for one in (x, y))
        difference = builder.emit(op.subtract(squares, others))
        return difference, builder.emit(op.sum(builder.emit(op.exp(difference)), [1]))

    made = check(program(body, (4, 20), (4, 20)), {"kind": "opencl", "profile": "pocl"})
    (text,) = (source for source in made.sources.values() if "x1_ptr" in source)
    assert re.search(r"#pragma OPENCL FP_CONTRACT OFF\s+return a - b;", text)
    assert text.count("eqsat_layout_difference_") > text.count("ifndef eqsat_layout_difference_") * 3
