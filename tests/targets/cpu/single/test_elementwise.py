"""Elementwise stages read vectors, and not single elements."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from targets.machines import AVX512
from tvm import te, tirx

from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of


def normalised(channels: int, group: int) -> Any:
    """Channels last less the mean of their group."""
    data = te.placeholder((40, channels), name="data")
    means = te.placeholder((channels // group,), name="means")
    result = te.compute((40, channels), lambda y, c: data[y, c] - means[tirx.floordiv(c, group)], name="normalised")
    return te.create_prim_func([data, means, result], index_dtype_override="int64")


def vectors(func: Any) -> set[int]:
    """The extents of vector loops."""
    return {int(loop.extent) for loop in nodes_of(func.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED}


@pytest.mark.parametrize(("channels", "group", "lanes"), [(128, 16, 16), (128, 32, 32), (48, 16, 16)])
def test_a_vector_lies_in_one_group(channels: int, group: int, lanes: int) -> None:
    """64 channels of four groups had their means gathered one by one."""
    assert vectors(schedule_primfunc(normalised(channels, group), AVX512)) == {lanes}


def test_means_of_groups_of_half_a_register_are_shuffled() -> None:
    assert "T.Shuffle([means[" in schedule_primfunc(normalised(64, 8), AVX512).script()


def padded(height: int, width: int, channels: int) -> Any:
    """An image with a border of one, channels last."""
    data = te.placeholder((height, width, channels), name="data")

    def at(y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= 1, y < height + 1, x >= 1, x < width + 1)
        return tirx.if_then_else(inside, data[y - 1, x - 1, c], tirx.const(0, "float32"))

    result = te.compute((height + 2, width + 2, channels), at, name="padded")
    return te.create_prim_func([data, result], index_dtype_override="int64")


def test_a_pad_of_three_colours_is_a_fill_and_a_copy() -> None:
    """It was done element by element, with conditions: no vector is three elements long."""
    func = schedule_primfunc(padded(32, 32, 3), AVX512)
    assert vectors(func) == {32}
    assert not [call for call in nodes_of(func.body, tvm.ir.Call) if "if_then_else" in str(call.op)]
