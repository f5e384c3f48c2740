"""Kernels that do the same stages again and again: a block around loops, and blocks inside of these.

In: an unscheduled PrimFunc of such a block, and how a function is scheduled. Out: the kernel in which stages that
follow one another have the schedule that they would have as a function of their own: their tiles of registers, their
vectors. A step of a recurrence is such a function. What changes from one iteration to the next may be in which slice of
a tensor a stage reads or writes; stages of which more changes stay as they are.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.stages import ROOT
from eqsat_layout.tir.blocks import accesses_of, block_of, stage_over, statement_over, statements_of, under_loops
from eqsat_layout.tir.structural import changed_block, changed_loop, nodes_of

_LONG = 1 << 16  # iterations of a stage that stays as it is that are worth a note

Scheduler = Callable[[Any, bool], Any]
"""Of a function, which is called again and again if the second argument is true."""


def has_blocks_inside(func: Any) -> bool:
    """One of its blocks is around others, and its iterations have an order; none has names for parts of tensors."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return False
    blocks = [block for statement in statements_of(func) for block in nodes_of(statement, s_tir.SBlock)]
    ordered = [block for block in blocks if all(axis.iter_type == tirx.IterVar.Opaque for axis in block.iter_vars)]
    is_around = any(nodes_of(block.body, s_tir.SBlock) for block in ordered)
    return is_around and not any(block.match_buffers for block in blocks)


def schedule_inside(func: Any, schedule: Scheduler, refused: list[str]) -> Any:
    """``func`` with its stages scheduled; ``schedule`` gives a function back as it was where it can't.

    ``refused`` gets a text for each long stage that stays as it is.
    """
    return func.with_body(_Inside(func, schedule, refused).done(func.body, ()))


def iterations_of_stages(func: Any) -> int:
    """The iterations of all stages of a function; a symbolic axis counts as 64."""
    return sum(map(_iterations, nodes_of(func.body.block.body, s_tir.SBlock)))


def _is_stage(statement: Any) -> bool:
    """A loop for each axis of a block, which stores an element."""
    loops = []
    while isinstance(statement, tirx.For):
        loops.append(statement)
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize) or not isinstance(statement.block.body, tirx.BufferStore):
        return False
    values, axes = statement.iter_values, statement.block.iter_vars
    if as_int(statement.predicate) != 1 or len(loops) != len(axes):
        return False
    return all(map(_is_along, loops, values, axes))


def _is_along(loop: Any, value: Any, axis: Any) -> bool:
    """The loop goes over all of the axis, of which it has ``value``."""
    same = map(tvm_ffi.structural_equal, (loop.min, loop.extent), (axis.dom.min, axis.dom.extent))
    return bool(value.same_as(loop.loop_var)) and loop.kind == tirx.ForKind.SERIAL and all(same)


@dataclass(frozen=True)
class _Slice:
    """Of a tensor, at the leading ``indices``: ``part`` has its other axes."""

    buffer: Any
    indices: tuple[Any, ...]
    part: Any

    @staticmethod
    def of(buffer: Any, indices: tuple[Any, ...]) -> _Slice:
        shape = list(buffer.ty.shape)[len(indices) :]
        part = tirx.decl_buffer(shape, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None)
        return _Slice(buffer, indices, part)

    def is_at(self, indices: Sequence[Any]) -> bool:
        return len(indices) == len(self.indices) and all(map(tvm_ffi.structural_equal, self.indices, indices))


@dataclass
class _Run:
    """Stages that follow one another, none of which changes what one before it reads or writes.

    ``outside``: variables of the loops and blocks around them. ``own``: tensors of the kernel itself. ``slices``: of
    every tensor, the one that the stages reach; nothing else in them hangs on those variables. ``blocks``: over the
    parts.
    """

    outside: Sequence[Any]
    own: Collection[Any]
    uses: Counter[Any] = field(default_factory=Counter)
    slices: dict[Any, _Slice] = field(default_factory=dict)
    blocks: list[Any] = field(default_factory=list)

    def takes(self, stage: Any) -> bool:
        """``stage`` is added, if it is one that the run can hold."""
        block, slices = block_of(stage), dict(self.slices)
        if block.body.buffer in slices or _counts_its_turns(block):
            return False
        accesses = accesses_of(block)
        for buffer, indices in accesses:
            own = tuple(itertools.takewhile(self._is_outside, indices))
            if not slices.setdefault(buffer, _Slice.of(buffer, own)).is_at(own):
                return False
        made = _over(block, slices)
        extents = [axis.dom.extent for axis in block.iter_vars]
        if any(map(self._is_outside, [*extents, *_statements(made)])):
            return False
        shapes = (one.part.ty.shape for buffer, one in slices.items() if buffer not in self.own)
        symbols = {extent for shape in shapes for extent in shape if isinstance(extent, tirx.Var)}
        if not _numbers_read(made) <= symbols:
            return False  # an extent of a whole tensor, which no part has
        self.slices = slices
        self.blocks.append(made)
        self.uses.update(buffer for buffer, _ in accesses)
        return True

    def _is_outside(self, part: Any) -> bool:
        return any(depends_on(part, var) for var in self.outside)


class _Inside:
    """One kernel while it is put together."""

    def __init__(self, func: Any, schedule: Scheduler, refused: list[str]) -> None:
        self._schedule, self._refused = schedule, refused
        self._moved: set[Any] = set()
        allocated = {buffer for block in nodes_of(func.body, s_tir.SBlock) for buffer in block.alloc_buffers}
        self._own = allocated.difference(*(call.args for call in nodes_of(func.body, tvm.ir.Call)))
        loads, stores = (nodes_of(func.body, kind) for kind in (tvm.ir.TensorLoad, tirx.BufferStore))
        self._uses = Counter([*(load.source for load in loads), *(store.buffer for store in stores)])

    def done(self, statement: Any, outside: tuple[Any, ...]) -> Any:
        """``statement``, inside of loops and blocks over the variables ``outside``."""
        if isinstance(statement, tirx.SeqStmt):
            made = self._runs(list(statement.seq), outside)
            return tirx.SeqStmt(made) if made[1:] else made[0]
        if _is_stage(statement):
            return self._runs([statement], outside)[0]  # by itself
        if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.SERIAL:
            body = self.done(statement.body, (*outside, statement.loop_var))
            return changed_loop(statement, body=body)
        if isinstance(statement, s_tir.SBlockRealize):
            block = statement.block
            inner = self.done(block.body, (*outside, *(axis.var for axis in block.iter_vars)))
            left = [buffer for buffer in block.alloc_buffers if buffer not in self._moved]
            reads, writes = (
                [one for one in own if one.source not in self._moved] for own in (block.reads, block.writes)
            )
            changed = changed_block(block, body=inner, alloc_buffers=left, reads=reads, writes=writes)
            return s_tir.SBlockRealize(statement.iter_values, statement.predicate, changed)
        return statement

    def _runs(self, statements: Sequence[Any], outside: tuple[Any, ...]) -> list[Any]:
        made: list[Any] = []
        run = _Run(outside, self._own)
        for statement in statements:
            if _is_stage(statement) and run.takes(statement):
                continue
            made += self._scheduled(run)
            run = _Run(outside, self._own)
            if not _is_stage(statement):
                made.append(self.done(statement, outside))
            elif not run.takes(statement):
                made.append(self._as_it_is(statement))
        return [*made, *self._scheduled(run)]

    def _as_it_is(self, stage: Any) -> Any:
        block = block_of(stage)
        if _iterations(block) >= _LONG:
            name = block.name_hint
            self._refused.append(f": stage {name} is not scheduled: it is another one in each iteration of a loop")
        return stage

    def _scheduled(self, run: _Run) -> list[Any]:
        """The stages of the run as one statement, if there are any."""
        if not run.blocks:
            return []
        written = {block.body.buffer for block in run.blocks}
        inner = {buffer for buffer in self._own if self._is_inner(buffer, run)}
        self._moved |= inner
        reached = {one.part: one for one in run.slices.values() if one.buffer not in inner}
        params = sorted(reached, key=lambda part: part in written)
        stages, allocated = [under_loops(block) for block in run.blocks], [run.slices[buffer].part for buffer in inner]
        root = s_tir.SBlock([], [], [], ROOT, tirx.SeqStmt(stages) if stages[1:] else stages[0], None, allocated)
        part = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root)).with_attr("tirx.noalias", True)
        done = self._schedule(part, bool(run.outside))

        def place(part: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            return reached[part].buffer, [*reached[part].indices, *indices]

        return [statement_over(done, place, reached)]

    def _is_inner(self, buffer: Any, run: _Run) -> bool:
        """Only stages of the run read or write it, all of it."""
        return buffer in run.uses and run.uses[buffer] == self._uses[buffer] and not run.slices[buffer].indices


def _counts_its_turns(block: Any) -> bool:
    """It adds to what is there, so schedules may not do an element twice: no sum, which begins anew."""
    loads = nodes_of(block.body.value, tvm.ir.TensorLoad)
    return block.init is None and any(load.source.same_as(block.body.buffer) for load in loads)


def _numbers_read(block: Any) -> set[Any]:
    """The variables in a block that are neither tensors nor bound there."""
    found = {var for statement in _statements(block) for var in tirx.analysis.undefined_vars(statement)}
    axes = {axis.var for axis in block.iter_vars}
    return {var for var in found - axes if not isinstance(var.ty, tirx.BufferType)}


def _iterations(block: Any) -> int:
    return math.prod(as_int(axis.dom.extent) or 64 for axis in block.iter_vars)


def _statements(block: Any) -> list[Any]:
    return [block.body] if block.init is None else [block.body, block.init]


def _over(block: Any, slices: Mapping[Any, _Slice]) -> Any:
    """The block over parts of tensors."""

    def placed(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        own = slices[buffer]
        return own.part, indices[len(own.indices) :]

    return block_of(stage_over(block, placed))
