"""Axes of a chain in tiles of one size, of which the last overlaps the one before.

In: a schedule over stages, and an axis of one of them. Out: a new one in which that axis, and all axes of other stages
that run along it, are one of tiles and one inside a tile, and so is what lies between stages. So vectors and tiles
divide lengths that are prime: 197 positions of a vision transformer are four tiles of 52.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.schedules.accesses import as_int, depends_on, variables_of
from eqsat_layout.targets.schedules.rebuild import CutAxis, schedule_over
from eqsat_layout.tir.blocks import (
    accesses_of,
    block_of,
    is_load_of,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.tir.structural import is_one_of, substitute

_LEAST_OR_MOST = (tirx.Max, tirx.Min)  # of elements, some of which are taken twice


def cut_axes(sch: Any, axes: Sequence[tuple[str, Any]], size: int) -> Any:
    """The new schedule. ``axes``: of one extent, each the name of a block and its variable, which are to be in tiles of
    ``size`` elements.

    What lies in two tiles is made twice, to the same value; sums leave it out the second time. Refused where something
    between stages is read elsewhere along an axis, as by a window, and where a reduction makes a result in such tiles:
    their accumulators have to lie apart.
    """
    return _AxisCutter(sch, size).cut(axes)


@dataclass
class _AxisCutter:
    """``_vars``: by block the axes to be cut. ``_axes``: by buffer between stages the same of what it holds."""

    sch: Any
    size: int
    _vars: dict[str, list[Any]] = field(default_factory=dict)
    _axes: dict[Any, set[int]] = field(default_factory=dict)

    def cut(self, axes: Sequence[tuple[str, Any]]) -> Any:
        """The schedule over the new blocks."""
        func = self.sch.mod["main"]
        allocated = list(func.body.block.alloc_buffers)
        blocks = {str(block.name_hint): block for block in map(block_of, statements_of(func))}
        self._follow(blocks, allocated, axes)
        (extent,) = {_extent_of(blocks[name], own) for name, every in self._vars.items() for own in every}
        tiles = _Tiles(extent, -(-extent // self.size), self.size)
        after = {buffer: tiles.buffer(buffer, axes) for buffer, axes in self._axes.items()}
        between = [after.get(buffer, buffer) for buffer in allocated]
        made: list[Any] = []
        for name, block in blocks.items():
            own = _BlockCutter(block, tiles, self._vars.get(name, []), self._axes, after)
            if own.adds_up_in_tiles and store_of(block).buffer not in allocated:
                raise Refused("a result that is added up in tiles that overlap")
            made.append(own.statement())
        return schedule_over(func, made, between)

    def _follow(self, blocks: Mapping[str, Any], allocated: list[Any], axes: Sequence[tuple[str, Any]]) -> None:
        """Finds all axes that run along the first ones."""
        waiting = list(axes)
        while waiting:
            name, var = waiting.pop()
            own = self._vars.setdefault(name, [])
            if is_one_of(var, own):
                continue
            own.append(var)
            for buffer, indices in accesses_of(blocks[name]):
                if buffer not in allocated:
                    continue
                for axis, index in enumerate(indices):
                    if index.same_as(var):
                        waiting += self._along(blocks, buffer, axis)
                    elif depends_on(index, var):
                        raise Refused("another element along an axis to be cut")

    def _along(self, blocks: Mapping[str, Any], buffer: Any, axis: int) -> Iterator[tuple[str, Any]]:
        """The axes of blocks that run along that of a buffer."""
        known = self._axes.setdefault(buffer, set())
        if axis in known:
            return
        known.add(axis)
        for name, block in blocks.items():
            for other, indices in accesses_of(block):
                if other.same_as(buffer):
                    if not any(indices[axis].same_as(iter_var.var) for iter_var in block.iter_vars):
                        raise Refused("another element along an axis to be cut")
                    yield name, indices[axis]


@dataclass(frozen=True)
class _Tiles:
    """``count`` of ``size`` elements, of ``extent`` in all."""

    extent: int
    count: int
    size: int

    def axis(self, var: Any, kind: int) -> CutAxis:
        """An axis of a block in the place of ``var``."""
        return CutAxis.of(self.extent, self.count, self.size, str(var.ty.dtype), kind)

    def buffer(self, before: Any, axes: Container[int]) -> Any:
        """The buffer with these axes cut."""
        shape: list[Any] = []
        for axis, extent in enumerate(before.ty.shape):
            sizes = [tirx.IntImm(str(extent.ty.dtype), size) for size in (self.count, self.size)]
            shape += sizes if axis in axes else [extent]
        return tirx.decl_buffer(shape, before.ty.dtype, before.name, scope=before.scope(), layout=None)


class _BlockCutter:
    """A block over axes of which some (``own``) are cut; ``after``: buffers whose ``axes`` are."""

    def __init__(
        self, block: Any, tiles: _Tiles, own: Sequence[Any], axes: Mapping[Any, set[int]], after: Mapping[Any, Any]
    ) -> None:
        self._block, self._tiles, self._axes, self._after = block, tiles, axes, after
        self._iters: list[Any] = []
        self.cuts: dict[Any, CutAxis] = {}
        for axis in block.iter_vars:
            if is_one_of(axis.var, own):
                cut = self.cuts[axis.var] = tiles.axis(axis.var, axis.iter_type)
                self._iters += [cut.number, cut.place]
            else:
                self._iters.append(axis)

    @property
    def adds_up_in_tiles(self) -> bool:
        """A reduction whose results lie in tiles that overlap."""
        kinds = {axis.iter_type for axis in self._iters}
        in_tiles = any(cut.number.iter_type == tirx.IterVar.DataPar for cut in self.cuts.values())
        return in_tiles and tirx.IterVar.CommReduce in kinds

    def statement(self) -> Any:
        """The block under its loops."""
        block = self._block
        body, init = self._moved(store_of(block)), None if block.init is None else self._moved(block.init)
        for cut in self.cuts.values():
            if cut.number.iter_type == tirx.IterVar.CommReduce:
                body = _once(body, init, cut)
        return storing_block(self._iters, block.name_hint, body, init, block.annotations)

    def _moved(self, statement: Any) -> Any:
        elements = {var: cut.element for var, cut in self.cuts.items()}
        return substitute(with_accesses(statement, self._place), elements)

    def _place(self, buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        axes, found = self._axes.get(buffer), list[Any]()
        if axes is None:
            return buffer, indices
        for axis, index in enumerate(indices):
            found += [self.cuts[index].number.var, self.cuts[index].place.var] if axis in axes else [index]
        return self._after[buffer], found


def _once(update: Any, init: Any, cut: CutAxis) -> Any:
    """The update of a reduction over a cut axis for new elements only: for others it gets what it starts with."""
    value, is_new = update.value, cut.element >= cut.start
    kind = next((kind for kind in (tirx.Add, tirx.Mul, *_LEAST_OR_MOST) if isinstance(value, kind)), None)
    if kind is None or init is None or not is_load_of(value.a, update):
        raise Refused("a reduction of another kind")
    if kind in _LEAST_OR_MOST:
        return update
    more = value.b
    if kind is tirx.Add and isinstance(more, tirx.Mul) and variables_of(more.a) != variables_of(more.b):
        # a step of a product is left out as a whole
        more = tirx.Mul(tirx.if_then_else(is_new, more.a, tirx.const(0, more.ty.dtype)), more.b)
    else:
        more = tirx.Select(is_new, more, init.value)
    return tirx.BufferStore(update.buffer, kind(value.a, more), update.indices)


def _extent_of(block: Any, var: Any) -> int:
    extent = next(as_int(axis.dom.extent) for axis in block.iter_vars if axis.var.same_as(var))
    if extent is None:
        raise Refused("an axis of unknown extent")
    return extent
