"""Pixels whose colours are put side by side, in vectors of several pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from targets.cpu.byte_kernels import HERE, ran
from tvm import te, tirx

from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of

BORDER = 7


def pixels(planes: int, colours: int, width: int, edge: int, dtype: str = "uint8", stride: int = 1) -> Any:
    """Planes of floats as bytes of pixels, with an edge around; colours that there are not are as the edge."""
    height = 5
    data = te.placeholder((1, planes, height, width), "float32", "data")

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(c < planes, edge <= y, y < height + edge, edge <= x, x < width // stride + edge)
        plane = data[n, c, y - edge, (x - edge) * stride].astype(dtype)
        return tirx.if_then_else(inside, plane, tirx.const(BORDER, dtype))

    shape = (1, height + 2 * edge, width // stride + 2 * edge, colours)
    return te.create_prim_func([data, te.compute(shape, element)], index_dtype_override="int64")


def expected(data: Any, func: Any, edge: int, stride: int) -> Any:
    made = np.full([int(extent) for extent in func.params[-1].ty.shape], BORDER, str(func.params[-1].ty.dtype))
    planes, height, width = data.shape[1], data.shape[2], data.shape[3] // stride
    inside = np.moveaxis(data[..., : width * stride : stride], 1, -1)
    made[:, edge : edge + height, edge : edge + width, :planes] = inside
    return made


@pytest.mark.parametrize(
    ("planes", "colours", "width", "edge", "dtype", "stride", "in_vectors"),
    [
        (3, 4, 48, 3, "uint8", 1, True),
        (4, 4, 37, 0, "int8", 1, True),  # the last vector overlaps the one before
        (1, 4, 16, 1, "uint8", 1, True),
        (2, 2, 70, 2, "uint8", 1, True),
        (3, 4, 7, 3, "uint8", 1, False),  # narrower than a vector
        (3, 4, 96, 1, "uint8", 2, False),  # rows that are no neighbours
        (4, 4, 48, 1, "int32", 1, False),
        (3, 3, 48, 1, "uint8", 1, False),
    ],
)
def test_pixels_are_put_together(
    planes: int, colours: int, width: int, edge: int, dtype: str, stride: int, in_vectors: bool
) -> None:
    func = pixels(planes, colours, width, edge, dtype, stride)
    kernel = schedule_primfunc(func, HERE.machine)
    wide = [one for one in nodes_of(kernel.body, tirx.Shuffle) if len(one.indices) == HERE.machine.lanes(1)]
    assert bool(wide) == in_vectors
    data = np.random.default_rng(0).integers(0, 120, (1, planes, 5, width)).astype("float32")
    empty = np.zeros([int(extent) for extent in func.params[-1].ty.shape], dtype)
    np.testing.assert_array_equal(ran(kernel, [data, empty]), expected(data, func, edge, stride))


def test_one_row_alone_is_left_to_others() -> None:
    data = te.placeholder((4, 64), "float32", "data")
    func = te.create_prim_func([data, te.compute((4,), lambda c: data[c, 3].astype("uint8"))])
    given = np.random.default_rng(0).integers(0, 120, (4, 64)).astype("float32")
    got = ran(schedule_primfunc(func, HERE.machine), [given, np.zeros(4, "uint8")])
    np.testing.assert_array_equal(got, given[:, 3].astype("uint8"))
