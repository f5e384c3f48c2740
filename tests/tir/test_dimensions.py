"""What the dimensions of accesses run along."""

from __future__ import annotations

from tir.helpers import legal, understood
from tvm import relax

from eqsat_layout.maps import Digit
from eqsat_layout.tir.dimensions import are_in_step, dimensions

op = relax.op


def test_a_window_moves_along_two_variables_and_a_channel_along_one() -> None:
    conv = understood(legal(lambda x, w: op.nn.conv2d(x, w, strides=2), (1, 8, 9, 9), (16, 8, 3, 3)))
    block = conv.blocks[-1]
    (data,) = [read for read in block.reads if conv.buffers[read.buffer].shape == (1, 8, 9, 9)]
    batch, channel, row, _ = dimensions(block, data)
    assert batch.moving == ()
    assert channel.shift == (channel.moving[0], 0)
    assert channel.spatial == ()
    assert (len(row.moving), len(row.spatial), row.shift, row.radix_of(9)) == (2, 1, None, None)
    assert dimensions(block, data) is dimensions(block, data)


def test_a_reshape_writes_numbers_digit_by_digit() -> None:
    reshape = understood(legal(lambda x: op.reshape(x, (2, 3, 4)), (6, 4)))
    (block,) = reshape.blocks
    first, last = dimensions(block, block.reads[0])
    rows, columns = first.moving
    assert first.radix_of(6) == (Digit(rows, 1, 2), Digit(columns, 1, 3))
    assert first.radix_of(12) is None
    assert last.shift == (last.moving[0], 0)


def test_only_what_is_accessed_at_the_same_place_is_in_step() -> None:
    relu = understood(legal(lambda x: op.nn.relu(x), (2, 3)))
    turned = understood(legal(lambda x: op.permute_dims(x), (3, 3)))
    shifted = understood(legal(lambda x: op.strided_slice(x, [0], [1], [3]), (3, 3)))
    in_step = [are_in_step(c.blocks[0], c.blocks[0].writes[0], c.blocks[0].reads[0]) for c in (relu, turned, shifted)]
    assert in_step == [True, False, False]
