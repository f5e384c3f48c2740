"""Reductions whose tiles run over several axes at once, of any size.

In: a schedule, a reduction with its elementwise consumer, and a :class:`JoinedTile`. Out: a schedule in which axes such
as height and width of both blocks are one axis of tiles and one inside a tile; the last tile may overlap another.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from eqsat_layout.targets.cpu.model.register_tiles import JoinedTile
from eqsat_layout.targets.schedules.rebuild import CutAxis, schedule_over
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import block_of, statements_of, store_of, storing_block, with_accesses
from eqsat_layout.tir.structural import substitute


def join_axes(sch: Any, stage: Stage, epilogue: Stage, tile: JoinedTile) -> Any:
    """A new schedule. ``epilogue`` reads what ``stage`` writes at its own axes, in order; both have plain loops.

    A last tile that would run over the end starts earlier: what lies in two tiles is computed twice, to the same value,
    so that no tile has a condition in it.
    """
    func = sch.mod["main"]
    root = func.body.block
    before = stage.write.buffer
    joiner = _AxisJoiner(stage, before, tile)
    statements = statements_of(func)
    for index, statement in enumerate(statements):
        block = block_of(statement)
        if block.name_hint in (stage.name, epilogue.name):
            statements[index] = joiner.over_tiles(block)
    allocated = [joiner.after if b.same_as(before) else b for b in root.alloc_buffers]
    return schedule_over(func, statements, allocated)


class _AxisJoiner:
    """``after`` is the buffer between the two blocks, with an axis of tiles and one inside a tile for the joined."""

    def __init__(self, stage: Stage, before: Any, tile: JoinedTile) -> None:
        self.tile = tile
        self.before = before
        self.extents = [a.extent or 1 for a in stage.spatial[tile.first : tile.last]]
        self.elements = math.prod(self.extents)
        shape = list(before.ty.shape)
        self.dtype = str(shape[0].ty.dtype)
        shape[tile.first : tile.last] = [tirx.IntImm(self.dtype, extent) for extent in (tile.count, tile.size)]
        self.after = tirx.decl_buffer(shape, before.ty.dtype, before.name, scope=before.scope(), layout=None)

    def over_tiles(self, block: Any) -> Any:
        """The block over the new axes, under one loop for each."""
        first, last = self.tile.first, self.tile.last
        cut = CutAxis.of(self.elements, self.tile.count, self.tile.size, self.dtype)
        iters = list(block.iter_vars)
        values = {old.var: value for old, value in zip(iters[first:last], self._spread(cut.element), strict=True)}
        iters[first:last] = [cut.number, cut.place]

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            if not buffer.same_as(self.before):
                return buffer, indices
            return self.after, [*indices[:first], cut.number.var, cut.place.var, *indices[last:]]

        def moved(statement: Any) -> Any:
            return substitute(with_accesses(statement, place), values)

        init = None if block.init is None else moved(block.init)
        return storing_block(iters, block.name_hint, moved(store_of(block)), init, block.annotations)

    def _spread(self, flat: Any) -> list[Any]:
        """The old axes of an element."""
        found: list[Any] = []
        weight = self.elements
        for extent in self.extents:
            above, weight = weight, weight // extent
            digit = flat if above == self.elements else tirx.floormod(flat, above)
            found.append(tirx.floordiv(digit, weight) if weight > 1 else digit)
        return found
