"""Blocks that are put together again say what they read."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Var

from eqsat_layout.tir.blocks import block_of, storing_block


def test_a_block_reads_each_of_two_buffers_that_look_the_same() -> None:
    """TVM's structural equality takes one for the other; a stage was then computed after its reader (MobileViTv2)."""
    one, other, result = (tirx.decl_buffer((4,), "float32", name) for name in ("one", "other", "result"))
    axis = tirx.IterVar((0, 4), Var("i", "int32"), tirx.IterVar.DataPar)
    value = tirx.BufferLoad(one, [axis.var]) * tirx.BufferLoad(other, [axis.var]) + tirx.BufferLoad(one, [axis.var])
    block = block_of(storing_block([axis], "block", tirx.BufferStore(result, value, [axis.var])))
    assert [region.source.name for region in block.reads] == ["one", "other"]
