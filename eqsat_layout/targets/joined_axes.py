"""Reductions whose tiles run over several axes at once, of any size (targets room).

In: a schedule, a reduction with its elementwise consumer, and a :class:`JoinedTile`. Out: a schedule in which axes such
as height and width of both blocks are one axis of tiles and one inside a tile. A last tile that would run over the end
starts earlier: what lies in two tiles is computed twice, to the same value, so that no tile has a condition in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.targets.rebuilt import block_of, schedule_over, under_loops
from eqsat_layout.targets.stages import Stage
from eqsat_layout.targets.tiles import JoinedTile
from eqsat_layout.tir.structural import structural_map, substitute


def join_axes(sch: Any, stage: Stage, epilogue: Stage, tile: JoinedTile) -> Any:
    """A new schedule. ``epilogue`` reads what ``stage`` writes at its own axes, in order; both have plain loops."""
    func = sch.mod["main"]
    root = func.body.block
    before = stage.write.buffer
    joiner = _Joiner(stage, before, tile)
    nests = list(root.body.seq)
    for index, nest in enumerate(nests):
        name = block_of(nest).name_hint
        if name in (stage.name, epilogue.name):
            nests[index] = joiner.nest(nest)
    allocated = [joiner.after if b.same_as(before) else b for b in root.alloc_buffers]
    return schedule_over(func, nests, allocated)


class _Joiner:
    """``after`` is the buffer between the two blocks, with an axis of tiles and one inside a tile for the joined."""

    def __init__(self, stage: Stage, before: Any, tile: JoinedTile) -> None:
        self.tile = tile
        self.before = before
        self.extents = [a.extent or 1 for a in stage.spatial[tile.first : tile.last]]
        self.elements = math.prod(self.extents)
        shape = list(before.ty.shape)
        self.dtype = str(shape[0].ty.dtype)
        shape[tile.first : tile.last] = [self._int(tile.count), self._int(tile.size)]
        self.after = tirx.decl_buffer(shape, before.ty.dtype, before.name, scope=before.scope(), layout=None)

    def nest(self, nest: Any) -> Any:
        """The block over the new axes, under one loop for each."""
        block = block_of(nest)
        first, last = self.tile.first, self.tile.last
        iters = list(block.iter_vars)
        joined = iters[first:last]
        new = [self._axis("t", self.tile.count), self._axis("r", self.tile.size)]
        spread = self._spread(new[0].var, new[1].var)
        values = {old.var: value for old, value in zip(joined, spread, strict=True)}
        inner = [axis.var for axis in new]
        iters[first:last] = new
        moved = self._mover(values, inner)
        rewritten = s_tir.SBlock(
            iters,
            [self._region(r, values, inner) for r in block.reads],
            [self._region(r, values, inner) for r in block.writes],
            block.name_hint,
            moved(block.body),
            None if block.init is None else moved(block.init),
            annotations=block.annotations,
        )
        return under_loops(rewritten)

    def _axis(self, name: str, extent: int) -> Any:
        domain = tvm.ir.Range(self._int(0), self._int(extent))
        return tirx.IterVar(domain, tirx.Var(name, self.dtype), tirx.IterVar.DataPar)

    def _spread(self, number: Any, place: Any) -> list[Any]:
        """The old axes of element ``place`` of tile ``number``."""
        start: Any = number * self.tile.size
        if self.elements < self.tile.count * self.tile.size:
            start = tirx.min(start, self._int(self.elements - self.tile.size))
        flat = start + place
        found: list[Any] = []
        weight = self.elements
        for extent in self.extents:
            above, weight = weight, weight // extent
            digit = flat if above == self.elements else tirx.floormod(flat, above)
            found.append(tirx.floordiv(digit, weight) if weight > 1 else digit)
        return found

    def _mover(self, values: Mapping[Any, Any], inner: Sequence[Any]) -> Callable[[Any], Any]:
        def load(node: Any) -> Any:
            if not node.source.same_as(self.before):
                return node
            return tirx.BufferLoad(self.after, self._placed(list(node.indices), inner))

        def store(node: Any) -> Any:
            if not node.buffer.same_as(self.before):
                return node
            return tirx.BufferStore(self.after, node.value, self._placed(list(node.indices), inner))

        def moved(statement: Any) -> Any:
            moved = structural_map(statement, (tvm.ir.TensorLoad, load), (tirx.BufferStore, store))
            return substitute(moved, values)

        return moved

    def _region(self, region: Any, values: Mapping[Any, Any], inner: Sequence[Any]) -> Any:
        if region.source.same_as(self.before):
            one = self._int(1)
            indices = self._placed([r.min for r in region.region], inner)
            return tirx.BufferRegion(self.after, [tvm.ir.Range.from_min_extent(i, one) for i in indices])
        ranges = [tvm.ir.Range.from_min_extent(substitute(r.min, values), r.extent) for r in region.region]
        return tirx.BufferRegion(region.source, ranges)

    def _placed(self, indices: list[Any], inner: Sequence[Any]) -> list[Any]:
        indices[self.tile.first : self.tile.last] = inner
        return indices

    def _int(self, value: int) -> Any:
        return tirx.IntImm(self.dtype, value)
