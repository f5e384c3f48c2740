"""A kernel that does one step of a recurrence again and again.

In: a step in tensor expressions, over the states before it. Out: a PrimFunc whose one block holds the loop over all
steps, and the stages of the step as blocks inside of the loop. So a target schedules a step as it would schedule a
function, long sequences compile as fast as short ones, and the number of steps may be known at run time only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, te, tirx

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


def repeated(step: Step, steps: Any, *, is_reverse: bool) -> tirx.PrimFunc:
    """The kernel of ``(all given, *others, *states before the first step, all made, *states after the last)``.

    ``is_reverse``: the last step is the first one that is done.
    """
    before, after = (list(states) for states in zip(*step.states, strict=True))
    one = _function([step.given, *step.others, *before, step.number, step.made, *after])
    buffers = iter(one.params)
    given, others, before, number, made, after = (
        [next(buffers) for _ in tensors] for tensors in ([0], step.others, before, [0], [0], after)
    )
    sequences = {own: _buffer(own.name, (steps, *own.ty.shape), own.ty.dtype) for own in (*given, *made)}
    firsts = [_buffer(f"first_{state.name}", state.ty.shape, state.ty.dtype) for state in before]
    loop, axis = tirx.Var("step", "int64"), tirx.Var("at", "int64")
    at = _Step(steps - 1 - axis if is_reverse else axis, sequences, number[0])
    body = at.placed(tirx.SeqStmt([*_statements(one), *map(_copied, after, before)]))
    reads, writes = [sequences[given[0]], *others], [sequences[made[0]], *before]
    own = [*one.body.block.alloc_buffers, *after]
    domain = tvm.ir.Range.from_min_extent(_ZERO, steps)
    every = tirx.IterVar(domain, axis, tirx.IterVar.Opaque)
    inner = s_tir.SBlock([every], _wholes([*reads, *before]), _wholes([*writes, *own]), "step", body)
    steps_done = tirx.For(loop, _ZERO, steps, tirx.ForKind.SERIAL, s_tir.SBlockRealize([loop], True, inner))
    body = tirx.SeqStmt([*map(_copied, firsts, before), steps_done])
    outer = s_tir.SBlock([], _wholes([*reads, *firsts]), _wholes(writes), "steps", body, alloc_buffers=own)
    root = s_tir.SBlock([], [], [], "root", s_tir.SBlockRealize([], True, outer))
    made = tirx.PrimFunc([*reads, *firsts, *writes], s_tir.SBlockRealize([], True, root))
    return made.with_attr({"tirx.noalias": True, "s_tir": True})


@dataclass(frozen=True)
class _Step:
    """What is done at the step ``at``: ``sequences`` are whole buffers, by those of one step."""

    at: Any
    sequences: Mapping[Any, Any]
    number: Any

    def placed(self, statement: Any) -> Any:
        """The statement over whole buffers."""
        return structural_map(
            statement,
            (tvm.ir.TensorLoad, self._load),
            (tirx.BufferStore, self._store),
            (s_tir.SBlock, self._block),
        )

    def _load(self, load: Any) -> Any:
        if load.source.same_as(self.number):
            return self.at
        return tirx.BufferLoad(*self._place(load.source, load.indices))

    def _store(self, store: Any) -> Any:
        buffer, indices = self._place(store.buffer, store.indices)
        return tirx.BufferStore(buffer, store.value, indices)

    def _region(self, region: Any) -> Any:
        parts = list(region.region)
        if region.source in self.sequences:
            parts = [tvm.ir.Range.from_min_extent(self.at, tirx.IntImm("int64", 1)), *parts]
        return tirx.BufferRegion(self._place(region.source, [])[0], parts)

    def _block(self, block: Any) -> Any:
        reads = [self._region(read) for read in block.reads if not read.source.same_as(self.number)]
        return changed_block(block, reads=reads, writes=[self._region(write) for write in block.writes])

    def _place(self, buffer: Any, indices: Sequence[Any]) -> tuple[Any, list[Any]]:
        whole = self.sequences.get(buffer)
        return (buffer, list(indices)) if whole is None else (whole, [self.at, *indices])


_ZERO = tirx.IntImm("int64", 0)


def _function(tensors: Sequence[Any]) -> Any:
    return te.create_prim_func(list(tensors), index_dtype_override="int64")


def _statements(function: Any) -> list[Any]:
    body = function.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _copied(source: Any, target: Any) -> Any:
    """All elements of a buffer into another one of its shape."""
    given = te.placeholder(source.ty.shape, source.ty.dtype, "given")
    plain = _function([given, te.compute(source.ty.shape, lambda *at: given(*at), target.name)])
    return substitute(_statements(plain)[0], dict(zip(plain.params, (source, target), strict=True)))


def _buffer(name: str, shape: Sequence[Any], dtype: Any) -> Any:
    return tirx.decl_buffer(list(shape), dtype, name, layout=None)


def _wholes(buffers: Sequence[Any]) -> list[Any]:
    return [
        tirx.BufferRegion(one, [tvm.ir.Range.from_min_extent(_ZERO, extent) for extent in one.ty.shape])
        for one in buffers
    ]
