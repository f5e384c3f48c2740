"""A kernel that does one step of a recurrence again and again.

In: a step in tensor expressions, over the states before it. Out: a PrimFunc whose one block holds the loop over all
steps, and the stages of the step as blocks inside of the loop. So a target schedules a step as it would schedule a
function, long sequences compile as fast as short ones, and the number of steps may be known at run time only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import tvm
from tvm import s_tir, te, tirx

from eqsat_layout.tir.blocks import block_of, function_over, stage_over, statements_of
from eqsat_layout.tir.structural import changed_block, structural_map, substitute


@dataclass(frozen=True)
class Step:
    """``given`` and ``made``: what a step reads and gives of sequences, without their first axis, that of steps.

    ``others``: what all steps read. ``states``: each before the step and after it. ``number``: of the step, shape ().
    """

    given: Any
    others: Sequence[Any]
    states: Sequence[tuple[Any, Any]]
    made: Any
    number: Any


def loop_over_steps(step: Step, steps: Any, *, is_reverse: bool) -> tirx.PrimFunc:
    """The kernel of ``(all given, *others, *states before the first step, all made, *states after the last)``.

    ``is_reverse``: the last step is the first one that is done.
    """
    states = zip(*step.states, strict=True)
    one = _function([step.given, *step.others, *next(states), step.number, step.made, *next(states)])
    params, count = iter(one.params), len(step.states)
    given, others = next(params), list(islice(params, len(step.others)))
    before, number, made, after = list(islice(params, count)), next(params), next(params), list(params)
    sequences = {own: _buffer(own.name, (steps, *own.ty.shape), own.ty.dtype) for own in (given, made)}
    firsts = [_buffer(f"first_{state.name}", state.ty.shape, state.ty.dtype) for state in before]
    loop, axis = tirx.Var("step", "int64"), tirx.Var("at", "int64")
    at = steps - 1 - axis if is_reverse else axis
    stages = [*(_at_step(stage, at, number, sequences) for stage in statements_of(one)), *map(_copied, after, before)]
    reads, writes = [sequences[given], *others], [sequences[made], *before]
    own = [*one.body.block.alloc_buffers, *after]
    every = tirx.IterVar(tvm.ir.Range.from_min_extent(_ZERO, steps), axis, tirx.IterVar.Opaque)
    regions = _wholes([*reads, *before]), _wholes([*writes, *own])
    inner = s_tir.SBlockRealize([loop], True, s_tir.SBlock([every], *regions, "step", tirx.SeqStmt(stages)))
    body = [*map(_copied, firsts, before), tirx.For(loop, _ZERO, steps, tirx.ForKind.SERIAL, inner)]
    regions = _wholes([*reads, *firsts]), _wholes(writes)
    outer = s_tir.SBlock([], *regions, "steps", tirx.SeqStmt(body), alloc_buffers=own)
    whole = function_over(one, [s_tir.SBlockRealize([], True, outer)], [], [*reads, *firsts, *writes])
    return whole.without_attr("global_symbol")


def _at_step(stage: Any, at: Any, number: Any, sequences: Mapping[Any, Any]) -> Any:
    """What a stage does at the step ``at``: ``sequences`` are whole buffers, by those of one step."""

    def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        return (sequences[buffer], [at, *indices]) if buffer in sequences else (buffer, indices)

    block = block_of(stage)
    body = structural_map(block.body, (tvm.ir.TensorLoad, lambda load: at if load.source.same_as(number) else load))
    return stage_over(changed_block(block, body=body), place)


_ZERO = tirx.IntImm("int64", 0)


def _function(tensors: Sequence[Any]) -> Any:
    return te.create_prim_func(list(tensors), index_dtype_override="int64")


def _copied(source: Any, target: Any) -> Any:
    """All elements of a buffer into another one of its shape."""
    given = te.placeholder(source.ty.shape, source.ty.dtype, "given")
    plain = _function([given, te.compute(source.ty.shape, lambda *at: given(*at), target.name)])
    return substitute(statements_of(plain)[0], dict(zip(plain.params, (source, target), strict=True)))


def _buffer(name: str, shape: Sequence[Any], dtype: Any) -> Any:
    return tirx.decl_buffer(list(shape), dtype, name, layout=None)


def _wholes(buffers: Sequence[Any]) -> list[Any]:
    return [
        tirx.BufferRegion(one, [tvm.ir.Range.from_min_extent(_ZERO, extent) for extent in one.ty.shape])
        for one in buffers
    ]
