"""Reductions over no elements give what they begin with.

In: a module of PrimFuncs. Out: the same, in which a loop over nothing that a block reduces is one step, that begins:
TVM leaves such a loop out with all that stands in it, and the result would be memory that nobody wrote.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.tir.structural import changed_block, nodes_of, structural_map


def begin_empty_reductions(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself is not changed."""
    functions = {name: _begun(f) if isinstance(f, tirx.PrimFunc) else f for name, f in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _begun(func: Any) -> Any:
    loops = [
        value
        for realize in nodes_of(func.body, s_tir.SBlockRealize)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if realize.block.init is not None and _is_empty(axis)
    ]
    if not loops:
        return func

    def once(loop: Any) -> Any:
        if not any(loop.loop_var.same_as(one) for one in loops):
            return loop
        one = tirx.IntImm(loop.extent.ty.dtype, 1)
        return tirx.For(loop.loop_var, loop.min, one, loop.kind, loop.body, loop.thread_binding, loop.annotations)

    return func.with_body(structural_map(func.body, (tirx.For, once), (s_tir.SBlock, _only_begins)))


def _only_begins(block: Any) -> Any:
    if block.init is None or not any(map(_is_empty, block.iter_vars)):
        return block
    axes = [
        tirx.IterVar(tvm.ir.Range.from_min_extent(axis.dom.min, tirx.IntImm(axis.dom.extent.ty.dtype, 1)), axis.var, 2)
        if _is_empty(axis)
        else axis
        for axis in block.iter_vars
    ]
    return changed_block(block, iter_vars=axes, reads=[], body=tirx.Evaluate(tirx.IntImm("int32", 0)))


def _is_empty(axis: Any) -> bool:
    """It is reduced along, and has no elements."""
    extent = axis.dom.extent
    return int(axis.iter_type) == tirx.IterVar.CommReduce and isinstance(extent, tirx.IntImm) and int(extent) == 0
