"""Functions put together again from changed nests (targets room).

In: the blocks of an unscheduled PrimFunc, changed, and its buffers. Out: a schedule over the new function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

from eqsat_layout.targets.stages import new_schedule


def block_of(nest: Any) -> Any:
    """The block inside of loops."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest.block


def under_loops(block: Any) -> Any:
    """The block under one loop for each of its axes."""
    loops = [Var(f"i{number}", axis.var.ty) for number, axis in enumerate(block.iter_vars)]
    statement: Any = s_tir.SBlockRealize(loops, True, block)
    for loop, axis in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        statement = tirx.For(loop, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, statement)
    return statement


def nest_of(iters: Sequence[Any], name: str, body: Any, init: Any = None) -> Any:
    """A block that stores one element, under one loop for each of its axes."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(body, (tvm.ir.TensorLoad, loads.append))
    reads = [_point(load.source, load.indices) for load in loads if not load.source.same_as(body.buffer)]
    return under_loops(s_tir.SBlock(list(iters), reads, [_point(body.buffer, body.indices)], name, body, init))


def schedule_over(func: Any, nests: Sequence[Any], allocated: Sequence[Any]) -> Any:
    """A schedule over ``func`` with other nests in its root block, and other buffers allocated there."""
    root = func.body.block
    body = tirx.SeqStmt(list(nests)) if nests[1:] else nests[0]
    block = s_tir.SBlock([], [], [], root.name_hint, body, alloc_buffers=list(allocated), annotations=root.annotations)
    whole = s_tir.SBlockRealize([], True, block)
    return new_schedule(tirx.PrimFunc(func.params, whole, ret_type=func.ret_type, attrs=func.attrs))


def _point(buffer: Any, indices: Sequence[Any]) -> Any:
    ranges = [tvm.ir.Range.from_min_extent(index, tirx.IntImm(str(index.ty.dtype), 1)) for index in indices]
    return tirx.BufferRegion(buffer, ranges)
