"""Reductions over nothing, which are the neutral element.

In: a PrimFunc. Out: the same, in which a block that reduces over an axis of no elements writes what it starts from. TVM
writes that at the first step, and there is none: results would be what lay in memory before.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir, tirx

from eqsat_layout.tir.structural import changed_block, changed_loop, mapped_body, nodes_of


def with_empty_reductions(function: Any) -> Any:
    """See above; ``function`` itself where it has none."""
    found = [realize for realize in nodes_of(function.body, s_tir.SBlockRealize) if _is_empty(realize.block)]
    if not found:
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
    """The block with its first statement only."""
    if not _is_empty(block):
        return block
    axes = [_of_one(axis) if _has_none(axis) else axis for axis in block.iter_vars]
    return changed_block(block, iter_vars=axes, reads=[], body=block.init, init=None)


def _of_one(axis: Any) -> Any:
    one = tirx.IntImm(str(axis.dom.extent.ty.dtype), 1)
    return tirx.IterVar(ir.Range.from_min_extent(axis.dom.min, one), axis.var, axis.iter_type, axis.thread_tag)


def _is_empty(block: Any) -> bool:
    return block.init is not None and any(map(_has_none, block.iter_vars))


def _has_none(axis: Any) -> bool:
    return axis.iter_type == tirx.IterVar.CommReduce and axis.dom is not None and _is_zero(axis.dom.extent)


def _is_zero(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 0
