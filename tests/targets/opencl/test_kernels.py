"""What the OpenCL C of single kernels looks like: padding by the sampler, whole texels, operands loaded once."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm
from programs import program
from targets.device_cases import conv, nn
from targets.opencl.running import check
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T

from eqsat_layout.errors import Refused, TargetError
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.serial import in_one_work_item
from eqsat_layout.targets.opencl.kernels.lowering import lowered

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
        products = text.count("vstore4((vload4(")
        assert products > text.count("READ_IMAGEF(") - 1


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

    alone = in_one_work_item(scattered)
    with pytest.raises(Refused, match="no axis of y runs along the texels"):
        with_work_items(scattered)
    with pytest.raises(TargetError, match="kernel scattered writes a part of a texel"):
        lowered({"scattered": alone}, tvm.target.Target({"kind": "opencl", "device": "adreno"}))
