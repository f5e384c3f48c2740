"""Rows of any length in whole vectors.

In: a schedule over stages along the last axis of a tensor, whose extent no vector divides. Out: a new one, in which
that axis is one of vectors and one inside a vector; the last vector overlaps the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.schedules.accesses import StageAxis
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import is_parameter
from eqsat_layout.targets.schedules.rebuild import (
    CutAxis,
    block_of,
    schedule_over,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.targets.schedules.stages import Stage, stages_of
from eqsat_layout.tir.structural import substitute


def in_whole_vectors(sch: Any, width: int, extent: int | None = None) -> Any:
    """The new schedule; ``None`` where vectors of ``width`` elements divide the rows, or stages are of other kinds.

    ``extent``: of the rows, if it is not that of the last axis of the last stage. A last vector that would run over
    the end starts earlier: what lies in two is made twice, to the same value, and reductions skip it the second time.
    """
    stages = stages_of(sch)
    if extent is None:
        extent = stages[-1].axes[-1].extent if stages[-1].axes else None
    if extent is None or extent <= width or extent % width == 0:
        return None
    if not all(stage.simple and stage.is_plain and len(stage.reduced) <= 1 for stage in stages):
        return None
    return unless_refused(_RowCutter(sch, stages, extent, width).cut)


class _RowCutter:
    """Buffers between elementwise stages get an axis of vectors and one inside a vector, so these are plain again."""

    def __init__(self, sch: Any, stages: Sequence[Stage], extent: int, width: int) -> None:
        self._func = sch.mod["main"]
        self._extent, self._width, self._count = extent, width, -(-extent // width)
        self._rows = {stage.name: self._row_axis(stage) for stage in stages}
        made = [s for s in stages if self._rows[s.name] and not s.is_reduction and not is_parameter(sch, s)]
        self._cut = {stage.write.buffer: self._cut_buffer(stage.write.buffer) for stage in made}

    def cut(self) -> Any:
        """The schedule over the new blocks."""
        root = self._func.body.block
        statements = [self._in_vectors(statement) for statement in statements_of(self._func)]
        return schedule_over(self._func, statements, [self._cut.get(buffer, buffer) for buffer in root.alloc_buffers])

    def _row_axis(self, stage: Stage) -> StageAxis | None:
        """The axis of a stage along the rows; ``None``: it makes one element for a row."""
        axis = stage.reduced[0] if stage.is_reduction else stage.axes[-1]
        return axis if axis.extent == self._extent else None

    def _cut_buffer(self, buffer: Any) -> Any:
        *outer, last = buffer.ty.shape
        shape = [*outer, *(tirx.IntImm(str(last.ty.dtype), extent) for extent in (self._count, self._width))]
        return tirx.decl_buffer(shape, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None)

    def _in_vectors(self, statement: Any) -> Any:
        block = block_of(statement)
        row = self._rows[block.name_hint]
        if row is None:
            with_accesses(block.body, partial(self._placed, None, []))  # reads no rows, or is refused
            return statement
        iters = list(block.iter_vars)
        place = next(number for number, axis in enumerate(iters) if axis.var.same_as(row.var))
        kind = iters[place].iter_type
        cut = CutAxis.of(self._extent, self._count, self._width, str(row.var.ty.dtype), kind)
        iters[place : place + 1] = [cut.number, cut.place]
        own = [cut.number.var, cut.place.var]
        moved = with_accesses(store_of(block), partial(self._placed, row.var, own))
        body = substitute(moved, {row.var: cut.element})
        if block.init is not None:
            body = _once(body, block.init, cut.element >= cut.start)
        return storing_block(iters, block.name_hint, body, block.init)

    def _placed(self, row: Any, cut: Sequence[Any], buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        """An access in a block over the axis ``row`` (``None``: it has none), which becomes those of ``cut``."""
        if buffer not in self._cut:
            return buffer, indices
        *outer, last = indices
        if row is None or not last.same_as(row):
            raise Refused("another element of a row")
        return self._cut[buffer], [*outer, *cut]


def _once(update: Any, init: Any, is_new: Any) -> Any:
    """The update of a reduction for new elements only: for others it gets what it starts with."""
    value = update.value
    for operation in (tirx.Add, tirx.Mul, tirx.Max, tirx.Min):
        if isinstance(value, operation) and _is_load_of(value.a, update):
            more = tirx.Select(is_new, value.b, init.value)
            return tirx.BufferStore(update.buffer, operation(value.a, more), update.indices)
    raise Refused("a reduction of another kind")


def _is_load_of(value: Any, store: Any) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(store.buffer)
