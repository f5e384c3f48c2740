"""What the steps of a register tile read of an operand, and how long they wait for it.

In: an operand's facts, tiles and the machine. Out: elements, bytes and cycles of a step, of each tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.tiles import RegisterTile, Tiles

_LONG_ROW = 5  # elements of a window
_EVICTED = 1.2  # cycles of a row in a step where twice as many lie in the same sets of L1 as these have ways
_MISSED = 4.0  # cycles of one that is never there when it is read
_AWAITED = 12.0  # cycles of a line from the last-level cache that no hardware fetches ahead
_UNFETCHED = (
    6.0  # cycles of a step to another page, if what was fetched beside the last tile's lines is no longer there
)


@dataclass(frozen=True)
class MetAgain:
    """Of ``n`` neighbours along ``axis``, ``each * n + more`` elements are read in more than one step, ``alone * n`` in
    one, of ``steps`` along a row."""

    axis: int
    each: int
    more: int
    alone: int
    steps: int


@dataclass(frozen=True)
class OperandLoad:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element.

    ``run``: elements along the last axis before memory goes on elsewhere. ``total``: bytes that all tiles read.
    ``readings``: for how many elements of the result each is read, if these are a product's weights; else 0.
    ``is_streamed``: they come from memory. ``met_again``: what other steps along the last axis of a window read again.
    ``step``: elements from one step to the next. ``overflows_sets``: what a tile
    reads is not in L2 when the next one does.
    """

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int
    run: int
    total: int
    readings: int
    is_streamed: bool = False
    met_again: MetAgain | None = None
    step: int = 0
    overflows_sets: bool = False

    def moves(self, axis: int) -> bool:
        """The load's address depends on the axis."""
        return self.strides[axis] != 0

    def moved(self, tile: RegisterTile | Tiles) -> Any:
        """Elements that a step of a tile reads, vectors counted as one."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if self.moves(axis))

    def kept(self, tiles: Tiles) -> Any:
        """Vectors that a tile reads again in other steps along the last axis of a window."""
        again = self.met_again
        if again is None:
            return np.zeros_like(tiles.lanes)
        size = tiles.sizes[again.axis]
        return self.moved(tiles) // size * (again.each * size + again.more)

    def is_one_row(self, tiles: Tiles) -> Any:
        """A tile is neighbours along the rows of a long window that moves by one."""
        again = self.met_again
        if again is None or (again.each, again.alone) != (1, 0) or again.steps < _LONG_ROW:
            return np.zeros(tiles.lanes.shape, bool)
        return self.moved(tiles) == tiles.sizes[again.axis]

    def distinct(self, tiles: Tiles) -> Any:
        """Steps of the reduction, of those that touch any, in which all elements would be new ones."""
        again = self.met_again
        if again is None:
            return self.steps
        size = tiles.sizes[again.axis]
        return self.steps // again.steps * ((again.each + again.alone) * size + again.more) / size

    def shared(self, tile: RegisterTile | Tiles) -> Any:
        """For how many elements of a tile each is read."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if not self.moves(axis))

    def evicted(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that it takes to read rows again whose distance leaves them few sets of L1: powers of two."""
        way, rows = machine.l1_way_bytes, self.moved(tiles)
        moving = [(stride, size) for stride, size in zip(self.strides, tiles.sizes, strict=True) if stride != 0]
        apart = [stride and math.gcd(stride * self.element_bytes, way) for stride, _ in moving]
        known = [step for step in apart if step]
        in_one_set = rows / np.minimum(rows, way // math.gcd(way, *known)) if known else rows / rows
        along_each = np.ones(tiles.lanes.shape)
        for (_, size), step in zip(moving, apart, strict=True):  # where tiles overlap, a stride is not known
            along_each = along_each * size / np.minimum(size, way // (step or max(known, default=1)))
        in_one_set = np.maximum(in_one_set, along_each)
        excess = np.maximum(in_one_set * way / machine.l1_working_set - 1, 0)
        return rows * np.minimum(_EVICTED * excess**2, _MISSED)

    def unfetched(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that tiles of a few lines wait for rows whose distance leaves them few sets of L1.

        Elsewhere the lines that come with those of one tile are there for the next one.
        """
        way, apart = machine.l1_way_bytes, self.step * self.element_bytes
        if apart <= machine.line_bytes:
            return np.zeros(tiles.lanes.shape)
        in_one_set = self.steps * math.gcd(apart, way) // way
        is_part = tiles.lanes * tiles.sizes[tiles.vector] < self.run
        is_evicted = in_one_set * way > machine.l1_working_set
        return np.where(is_part & is_evicted, _UNFETCHED * min(1.0, apart / way), 0)

    def awaited(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that lines are waited for which are not in L2."""
        if not self.overflows_sets:
            return np.zeros(tiles.lanes.shape)
        size = tiles.lanes * self.element_bytes if self.strides[tiles.vector] else self.element_bytes
        along = math.prod(n for n, stride in zip(tiles.sizes, self.strides, strict=True) if stride == 1)
        lines = self.moved(tiles) / along * np.maximum(along * size / machine.line_bytes, 1)
        return _AWAITED * lines * min(1.0, self.step * self.element_bytes / machine.line_bytes)

    def streams(self, tile: RegisterTile | Tiles) -> Any:
        """Pieces of memory that a tile walks through side by side."""
        vectors = tile.sizes[tile.vector]
        return self.moved(tile) // np.where(tile.lanes * vectors <= self.run, vectors, 1)

    def are_in_step(self, tiles: Tiles, machine: CpuMachine, has_panels: bool) -> Any:
        """The pieces that a tile walks through, panels or rows, are in the same sets of L1 at any time, and are as many
        as fit these. The hardware fetches the next line of each before all of this one is read.

        Not so of rows that come from memory: a row is no longer than a page, and what is fetched ahead of it little.
        """
        if not has_panels and self.total > machine.last_level_working_set:
            return np.zeros(tiles.lanes.shape, bool)
        apart = self.run * self.steps  # panels lie one after another
        if not has_panels:
            apart = min((abs(stride) for stride in self.strides[:-1] if stride), default=0)
        groups = machine.l1_way_bytes // math.gcd(apart * self.element_bytes, machine.l1_way_bytes)
        return self.streams(tiles) >= groups * (machine.l1_working_set // machine.l1_way_bytes)


def bytes_to_l1(load: OperandLoad, tile: RegisterTile | Tiles, machine: CpuMachine, *, goes_on: bool = False) -> Any:
    """Bytes that a step of a tile, or of each, moves to L1. ``goes_on``: along the same rows in the next step."""
    moved = load.moved(tile)
    stride = load.strides[tile.vector] or 0
    touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
    if not stride or goes_on:
        return touched
    vectors = tile.sizes[tile.vector]
    in_lines = np.maximum(touched, moved // vectors * machine.line_bytes)  # the rest of a line is of no use yet
    return np.where(tile.lanes * vectors < load.run, in_lines, touched)
