"""Pads and crops are told by what they do."""

from __future__ import annotations

from typing import Any

import pytest
from tir.helpers import fmt, legal, understood
from tvm import relax
from tvm.script import tirx as T

from eqsat_layout.maps import IndexMap
from eqsat_layout.tir.recognise import Crop, Pad, crop_of, pad_of

op = relax.op
SHAPE = (2, 30)


def test_a_pad_op_is_a_pad() -> None:
    pad = pad_of(understood(legal(lambda x: op.nn.pad(x, [0, 0, 1, 2], "constant", 3.0), SHAPE)))
    assert pad == Pad((0, 1), (0, 2), 3.0, IndexMap.identity((2, 33)))
    assert pad.padding == ((0, 0), (1, 2))


def test_a_padding_layout_transform_is_a_pad_and_a_map() -> None:
    build = lambda x: op.layout_transform(x, lambda i, j: (i, j // 4, j % 4), pad_value=0.0)  # noqa: E731
    blocked = fmt((2, 32), [(0, 1, 2)], [(1, 4, 8)], [(1, 1, 4)]).index_map
    assert pad_of(understood(legal(build, SHAPE))) == Pad((0, 0), (0, 2), 0.0, blocked)


def test_a_slice_of_unit_stride_is_a_crop() -> None:
    crop = crop_of(understood(legal(lambda x: op.strided_slice(x, [1], [4], [20]), SHAPE)))
    assert crop == Crop((0, 4), (0, 10), IndexMap.identity(SHAPE))
    assert crop.padding == ((0, 0), (4, 10))


@T.prim_func(s_tir=True)
def border_of_one(x: T.Buffer((4,), "float32"), y: T.Buffer((6,), "float32")) -> None:
    for i in range(6):
        with T.sblock("y"):
            v = T.axis.spatial(6, i)
            y[v] = T.if_then_else(v < 1 or v >= 5, T.float32(1), x[v - 1])


def test_any_primfunc_that_pads_is_a_pad() -> None:
    assert pad_of(understood(border_of_one)) == Pad((1,), (1,), 1.0, IndexMap.identity((6,)))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: op.strided_slice(x, [1], [4], [20], [2]),
        lambda x: op.nn.pad(x, [0, 0, 1, 2], "reflect"),
        lambda x: op.nn.relu(x),
        lambda x: op.permute_dims(x, [1, 0]),
        lambda x: op.flip(x, 0),
        lambda x: op.sum(x, [1]),
    ],
)
def test_other_copies_are_neither(build: Any) -> None:
    computation = understood(legal(build, SHAPE))
    assert pad_of(computation) is None
    assert crop_of(computation) is None


def test_a_pad_is_no_crop() -> None:
    assert crop_of(understood(border_of_one)) is None
