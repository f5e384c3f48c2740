"""Reductions of one step are elementwise work: a depthwise convolution with a window of one element, a product of a
column and a row.

In: a schedule. Out: a new one in which such a stage stores what it would add to its start, once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.block_facts import runs_axes_in_loops
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.tir.blocks import block_of, statements_of, storing_block
from eqsat_layout.tir.structural import structural_map, substitute


def without_unit_reductions(sch: Any) -> Any:
    """``sch`` itself where every reduction has several steps."""
    func = sch.mod["main"]
    statements = statements_of(func)
    made = [unless_refused(partial(_in_one_step, statement)) or statement for statement in statements]
    if all(new is old for new, old in zip(made, statements, strict=True)):
        return sch
    return schedule_over(func, made, list(func.body.block.alloc_buffers))


def _in_one_step(statement: Any) -> Any:
    """The statement itself where it is no such reduction."""
    block = block_of(statement)
    steps = [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]
    is_short = 0 < len(steps) < len(block.iter_vars) and all(as_int(axis.dom.extent) == 1 for axis in steps)
    is_plain = isinstance(block.body, tirx.BufferStore) and isinstance(block.init, tirx.BufferStore)
    if is_plain and "int" in str(block.body.buffer.dtype):  # products of words of bytes are instructions that add up
        return statement
    if not is_short or not is_plain or not runs_axes_in_loops(statement, block, len(block.iter_vars)):
        return statement
    start = block.init.value

    def begun(load: Any) -> Any:
        return start if load.source.same_as(block.body.buffer) else load

    value = structural_map(block.body.value, (tvm.ir.TensorLoad, begun))
    store = tirx.BufferStore(block.body.buffer, value, block.body.indices)
    first = {axis.var: axis.dom.min for axis in steps}
    axes = [axis for axis in block.iter_vars if int(axis.iter_type) != tirx.IterVar.CommReduce]
    return storing_block(axes, block.name_hint, substitute(store, first), None, block.annotations)
