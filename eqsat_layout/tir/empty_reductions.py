"""Reductions over nothing: over an axis of no elements they are the neutral element, and over no axes what they reduce.

In: a PrimFunc. Out: the same, in which a block that reduces over an axis of no elements writes what it starts from. TVM
writes that at the first step, and there is none: results would be what lay in memory before. A block that has a start
and reduces over no axis is elementwise work, and is written as such: for a schedule its only step is the first and the
next one.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from eqsat_layout.tir.structural import changed_block, changed_loop, mapped_body, nodes_of, structural_map


def with_empty_reductions(function: Any) -> Any:
    """See above; ``function`` itself where it has none."""
    found = [realize for realize in nodes_of(function.body, s_tir.SBlockRealize) if realize.block.init is not None]
    if all(any(map(_is_reduced, one.block.iter_vars)) and not _is_empty(one.block) for one in found):
        return function
    loops = {
        var
        for realize in found
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if _has_none(axis)
        for var in nodes_of(value, ir.Var)
    }

    def once(loop: Any) -> Any:
        if loop.loop_var not in loops or not _is_zero(loop.extent):
            return loop
        return changed_loop(loop, extent=tirx.IntImm(str(loop.extent.ty.dtype), 1))

    return mapped_body(function, (s_tir.SBlock, _started), (tirx.For, once))


def _started(block: Any) -> Any:
    """The block with its first statement only, or with its only step."""
    if block.init is None:
        return block
    if not any(map(_is_reduced, block.iter_vars)):
        return changed_block(block, body=_in_one_step(block.init, block.body), init=None)
    if not _is_empty(block):
        return block
    axes = [_of_one(axis) if _has_none(axis) else axis for axis in block.iter_vars]
    return changed_block(block, iter_vars=axes, reads=[], body=block.init, init=None)


def _in_one_step(start: Any, step: Any) -> Any:
    if not all(isinstance(one, tirx.BufferStore) for one in (start, step)) or not _is_same_place(start, step):
        return tirx.SeqStmt([start, step])
    loads = [load for load in nodes_of(step.value, ir.TensorLoad) if load.source.same_as(start.buffer)]
    if not all(tvm_ffi.structural_equal(load.indices, start.indices) for load in loads):
        return tirx.SeqStmt([start, step])
    value = structural_map(
        step.value, (ir.TensorLoad, lambda load: start.value if load.source.same_as(start.buffer) else load)
    )
    return tirx.BufferStore(step.buffer, value, step.indices)


def _is_same_place(a: Any, b: Any) -> bool:
    return bool(a.buffer.same_as(b.buffer) and tvm_ffi.structural_equal(a.indices, b.indices))


def _of_one(axis: Any) -> Any:
    one = tirx.IntImm(str(axis.dom.extent.ty.dtype), 1)
    return tirx.IterVar(ir.Range.from_min_extent(axis.dom.min, one), axis.var, axis.iter_type, axis.thread_tag)


def _is_empty(block: Any) -> bool:
    return block.init is not None and any(map(_has_none, block.iter_vars))


def _has_none(axis: Any) -> bool:
    return _is_reduced(axis) and axis.dom is not None and _is_zero(axis.dom.extent)


def _is_reduced(axis: Any) -> bool:
    return bool(axis.iter_type == tirx.IterVar.CommReduce)


def _is_zero(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 0
