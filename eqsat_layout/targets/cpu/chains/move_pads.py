"""Pads of what was just made, moved in front of what makes it.

In: a schedule over several stages, of which one pads the result of a reduction. Out: a new one in which the reduction
makes the border too, of operands that are padded first, and its epilogue writes the pad there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.model.chain import Chain
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import align_epilogues, is_parameter
from eqsat_layout.targets.schedules.inlining import inline_producers
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stage_of, stages_of
from eqsat_layout.tir.blocks import block_of, statements_of, store_of, storing_block, with_accesses
from eqsat_layout.tir.structural import structural_map, substitute

_FAR = 1 << 31  # beyond it, an index is not known


def pads_first(sch: Any) -> Any:
    """The schedule with pads moved; ``None`` where there are none that can be.

    So all stages are made tile by tile without conditions in their loops: a convolution of 1x1 and the depthwise one
    after it are one kernel.
    """
    return unless_refused(lambda: _pads_first(new_schedule(inline_producers(sch, _is_joined).mod["main"])))


def _pads_first(sch: Any) -> Any:
    moved = None
    for name in [stage.name for stage in stages_of(sch)]:
        now = moved or sch
        stage = stage_of(now, now.get_sblock(name))
        if (found := _pad_after(now, stage)) is not None:
            moved = _PadMover(now, stage, *found).moved() or moved
    return None if moved is None else align_epilogues(moved)


def may_move_pads(chain: Chain) -> bool:
    """There are pads of what the chain makes, each of a product whose operands come from outside, as far as is seen."""
    found = [
        _is_product_of_others(chain, link.source)
        for stage, links in zip(chain.stages, chain.links, strict=True)
        for link in links
        if stage.conditions and link.source is not None
    ]
    return bool(found) and all(found)


def _is_product_of_others(chain: Chain, number: int) -> bool:
    """A stage is a reduction without a window, or made of one, of operands that are not made in the chain."""
    stage, sources = chain.stages[number], {link.source for link in chain.links[number]} - {None}
    if not stage.is_reduction:
        return any(_is_product_of_others(chain, source) for source in sources if source is not None)
    is_given = all(chain.stages[source].is_copy for source in sources if source is not None)
    return is_given and not stage.has_window and not stage.conditions


def _is_joined(stage: Stage, readers: Sequence[Stage]) -> bool:
    """Elementwise stages are one with elementwise ones, and copies with all: so it is one stage that pads."""
    return len(readers) == 1 and readers[0].simple and (stage.is_copy or not readers[0].is_reduction)


def _pad_after(sch: Any, stage: Stage) -> tuple[Stage, tuple[int, ...]] | None:
    """The stage that pads the result of a reduction, and by how much in front of each axis."""
    readers = lookups.get_consumers(sch, stage.block)
    is_plain = stage.is_reduction and stage.simple and stage.is_plain
    if not is_plain or stage.has_window or stage.conditions or len(readers) != 1:
        return None
    pad = stage_of(sch, readers[0])
    if pad.is_reduction or not pad.simple or not pad.is_plain or not pad.conditions or is_parameter(sch, pad):
        return None
    if not str(pad.write.buffer.ty.dtype).startswith("float"):  # a division of integers by what is at the border
        return None
    if len(pad.axes) != len(stage.spatial) or any(axis.extent is None for axis in (*pad.axes, *stage.axes)):
        return None
    reads = [load for load in pad.loads if load.buffer.same_as(stage.write.buffer)]
    shifts = {_shift(load, pad) for load in reads}
    (shift,) = shifts if len(shifts) == 1 else (None,)
    if shift is None or any(pad.branches_on(axis.var) for axis in pad.axes[-1:]):
        return None
    return pad, shift


def _shift(load: StageAccess, pad: Stage) -> tuple[int, ...] | None:
    """``s`` where the load is at the axes of ``pad`` minus ``s``; ``None`` where it is elsewhere."""
    analyzer = tvm.sym.Analyzer()
    found = [analyzer.simplify(axis.var - index) for axis, index in zip(pad.axes, load.indices, strict=True)]
    if not all(isinstance(shift, tirx.IntImm) for shift in found):
        return None
    return tuple(map(int, found))


class _PadMover:
    """Rewrites the two stages, and adds one for every operand that has no border yet."""

    def __init__(self, sch: Any, stage: Stage, pad: Stage, shift: Sequence[int]) -> None:
        self._func, self._stage, self._pad = sch.mod["main"], stage, pad
        made = stage.write.buffer.ty
        self._wide = tirx.decl_buffer(pad.write.buffer.ty.shape, made.dtype, "wide", layout=None)
        self._places = {a.var: a.var - s for a, s in zip(stage.spatial, shift, strict=True) if s}
        self._ranges = tvm.sym.Analyzer()
        for axis, wide in zip(stage.spatial, pad.axes, strict=True):
            self._ranges.bind(axis.var, tvm.ir.Range(0, wide.extent))
        for axis in stage.reduced:
            self._ranges.bind(axis.var, tvm.ir.Range(0, axis.extent))
        for axis in pad.axes:
            self._ranges.bind(axis.var, tvm.ir.Range(0, axis.extent))

    def moved(self) -> Any:
        """A new schedule; ``None`` where an operand is none that can be padded."""
        root = self._func.body.block
        placed = [replace(load, indices=self._moved(load.indices)) for load in self._stage.loads]
        padded = [_Padded.of(load, border) for load in placed if any(map(any, border := self._border(load)))]
        is_made_here = any(one.source.same_as(buffer) for one in padded for buffer in root.alloc_buffers)
        is_read_twice = any(a.buffer.same_as(b.buffer) for a, b in itertools.combinations(placed, 2))
        if is_made_here or is_read_twice or not self._is_safe():
            return None
        statements: list[Any] = []
        for statement in statements_of(self._func):
            block = block_of(statement)
            if block.name_hint == self._stage.name:
                statements += [*(one.copy() for one in padded), self._reduction(block, padded)]
            else:
                statements.append(self._epilogue(block) if block.name_hint == self._pad.name else statement)
        kept = [b for b in root.alloc_buffers if not b.same_as(self._stage.write.buffer)]
        allocated = [*kept, self._wide, *(one.buffer for one in padded)]
        return schedule_over(self._func, statements, allocated)

    def _moved(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self._ranges.simplify(substitute(index, self._places)) for index in indices)

    def _border(self, load: StageAccess) -> list[tuple[int, int]]:
        """For every axis of an operand the elements that are read in front of it and behind it."""
        bounds = [self._ranges.const_int_bound(index) for index in load.indices]
        if None in load.shape or any(max(abs(int(b.min_value)), abs(int(b.max_value))) > _FAR for b in bounds):
            raise Refused("an operand of which is not known what is read")
        return [
            (max(0, -int(bound.min_value)), max(0, int(bound.max_value) + 1 - (extent or 0)))
            for bound, extent in zip(bounds, load.shape, strict=True)
        ]

    def _is_safe(self) -> bool:
        """What else the pad reads is there at the border as well."""
        rest = [load for load in self._pad.loads if not load.buffer.same_as(self._stage.write.buffer)]
        return not any(any(map(any, self._border(load))) for load in rest)

    def _reduction(self, block: Any, padded: Sequence[_Padded]) -> Any:
        own = self._stage.write.buffer
        pairs = zip(self._stage.spatial, self._pad.axes, strict=True)
        extents = {axis.var: _like(wide.extent or 1, axis.var) for axis, wide in pairs}

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            if buffer.same_as(own):
                return self._wide, indices
            moved = self._moved(indices)
            copy = next((one for one in padded if one.source.same_as(buffer)), None)
            return (copy.buffer, copy.at(moved)) if copy else (buffer, list(moved))

        def widened(axis: Any) -> Any:
            if axis.var not in extents:
                return axis
            return tirx.IterVar(tvm.ir.Range(axis.dom.min, extents[axis.var]), axis.var, axis.iter_type)

        iters = list(map(widened, block.iter_vars))
        init = None if block.init is None else with_accesses(block.init, place)
        return storing_block(iters, block.name_hint, with_accesses(store_of(block), place), init)

    def _epilogue(self, block: Any) -> Any:
        at = [axis.var for axis in block.iter_vars]

        def on_load(load: Any) -> Any:
            return tirx.BufferLoad(self._wide, at) if load.source.same_as(self._stage.write.buffer) else load

        def on_call(call: Any) -> Any:  # both are there, so that no branch is needed
            name = str(getattr(call.op, "name", call.op))
            return tirx.Select(*call.args) if name.endswith("if_then_else") else call

        body = structural_map(store_of(block), (tvm.ir.TensorLoad, on_load), (tvm.ir.Call, on_call))
        return storing_block(list(block.iter_vars), block.name_hint, body)


@dataclass(frozen=True)
class _Padded:
    """An operand with a border of zeros: ``border[i]`` elements in front of axis ``i`` and behind it."""

    source: Any
    border: tuple[tuple[int, int], ...]
    buffer: Any

    @staticmethod
    def of(load: StageAccess, border: Sequence[tuple[int, int]]) -> _Padded:
        shape = [extent + sum(more) for extent, more in zip(load.buffer.ty.shape, border, strict=True)]
        buffer = tirx.decl_buffer(shape, load.buffer.ty.dtype, f"{load.buffer.name}_padded", layout=None)
        return _Padded(load.buffer, tuple(border), buffer)

    def at(self, indices: Sequence[Any]) -> list[Any]:
        """Where the element at such indices of the operand lies."""
        return [index + before if before else index for index, (before, _) in zip(indices, self.border, strict=True)]

    def copy(self) -> Any:
        """The stage that copies the operand."""
        shape = list(self.buffer.ty.shape)
        variables = [tirx.Var(f"p{number}", extent.ty.dtype) for number, extent in enumerate(shape)]
        ranges = [tvm.ir.Range(_like(0, extent), extent) for extent in shape]
        iters = [tirx.IterVar(r, var, tirx.IterVar.DataPar) for r, var in zip(ranges, variables, strict=True)]
        inside: list[Any] = []
        for var, extent, (before, after) in zip(variables, shape, self.border, strict=True):
            inside += [var >= before] if before else []
            inside += [var < extent - after] if after else []
        element = tirx.BufferLoad(
            self.source, [v - before if before else v for v, (before, _) in zip(variables, self.border, strict=True)]
        )
        value = tirx.if_then_else(tirx.all(*inside), element, tirx.const(0, self.buffer.ty.dtype))
        return storing_block(iters, self.buffer.name, tirx.BufferStore(self.buffer, value, variables))


def _like(number: int, expr: Any) -> Any:
    return tirx.IntImm(str(expr.ty.dtype), number)
