"""The tiles of weights: cut in panels while the unit works on the panel before, or loaded from where they lie.

In: a product and how it is cut. Out: the statements that prepare a panel, and those that load its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from tvm import tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.axes import LANES
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.amx.statements import Loops, Task
from eqsat_layout.targets.cpu.amx.tile_plan import TILES
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import substitute

_SMALL = 1 << 14  # bytes of panels, which stay in L1 beside a pair of tiles of rows


@dataclass(frozen=True)
class Panels:
    """The weights of a product: a task goes over ``count`` panels of ``blocks`` blocks of steps, and with each of them
    over ``pairs`` pairs of tiles of rows."""

    product: MatrixProduct
    loops: Loops
    count: int
    blocks: int
    pairs: int

    def places(self, at: Task, number: Any, column: Any, lane: Any, vector: Any, step: Any) -> dict[Any, Any]:
        """Of a weight: a column of a tile, the last one again for those that are too many, and a step."""
        product = self.product
        tile, tiles = (at.panel + number) * TILES + column, product.columns.vectors
        if tiles % TILES:
            tile = tirx.min(tile, self.loops.number(tiles - 1))
        places = product.shared_places(at.batch) | product.columns.at_run(tile, lane)
        lanes = product.steps.lanes
        return places | product.steps.at_run(self.run(vector, step), tirx.floormod(step, lanes))

    def run(self, vector: Any, step: Any) -> Any:
        """That of a step of a vector."""
        steps = self.product.steps
        return vector * steps.runs_of_vector + tirx.floordiv(step, steps.lanes)


class TilesOfWeights(Protocol):
    """Where tiles of weights come from."""

    @property
    def buffers(self) -> Sequence[Any]:
        """Of its own."""

    def first(self, at: Task) -> list[Any]:
        """Statements before all panels of a task."""

    def next(self, at: Task, number: Any, pair: Any, block: Any) -> list[Any]:
        """What is due for the panel after ``number`` in one step of one pair of tiles of rows."""

    def loaded(self, register: int, at: Task, number: Any, block: Any, part: int, column: int) -> Any:
        """One of the tiles of a block of a panel in a register."""


def tiles_of_weights(panels: Panels) -> TilesOfWeights:
    """From where they lie if they lie in tiles."""
    stride = panels.product.weight_stride
    return CutWeights(panels) if stride is None else WeightsInPlace(panels, stride * panels.product.numbers.part_bytes)


@dataclass(frozen=True)
class WeightsInPlace:
    """Tiles whose rows are ``stride`` bytes apart. CPUs prefetch them by themselves: asking for the next panel's lines
    made products of 16 rows take 1.7 times as long, others the same."""

    panels: Panels
    stride: int

    buffers: ClassVar[Sequence[Any]] = ()

    def first(self, at: Task) -> list[Any]:
        """See :class:`TilesOfWeights`."""
        return []

    def next(self, at: Task, number: Any, pair: Any, block: Any) -> list[Any]:
        """See :class:`TilesOfWeights`."""
        return []

    def loaded(self, register: int, at: Task, number: Any, block: Any, part: int, column: int) -> Any:
        """See :class:`TilesOfWeights`."""
        zero = self.panels.loops.number(0)
        vector = at.piece * self.panels.blocks + block
        places = self.panels.places(at, number, self.panels.loops.number(column), zero, vector, zero)
        first = substitute(self.panels.product.weights.value, places)
        return matrix_unit.loaded_tile(register, first.source, list(first.indices), self.stride)


@dataclass(frozen=True)
class CutWeights:
    """Panels of parts: all of them if they are small, else two at a time."""

    panels: Panels

    @property
    def buffers(self) -> Sequence[Any]:
        """See :class:`TilesOfWeights`."""
        return (self._panel, self._vector)

    @cached_property
    def _panel(self) -> Any:
        numbers = self.panels.product.numbers
        shape = (self._held, self.panels.blocks, numbers.parts, TILES, self._lines, matrix_unit.COLUMNS)
        row = numbers.row_of_weights([tirx.const(0, numbers.part_dtype)] * numbers.packed)
        return tirx.decl_buffer(shape, str(row.ty.dtype), "panel")

    @cached_property
    def _vector(self) -> Any:
        numbers = self.panels.product.numbers
        return tirx.decl_buffer((numbers.packed, LANES), numbers.dtype, "weights", scope="local")

    @cached_property
    def _held(self) -> int:
        """Panels that are there at a time."""
        numbers, panels = self.panels.product.numbers, self.panels
        size = panels.count * self._all_lines * numbers.parts * matrix_unit.ROW_BYTES
        return panels.count if size <= _SMALL else min(panels.count, 2)

    @property
    def _lines(self) -> int:
        """Rows of a tile."""
        numbers = self.panels.product.numbers
        return numbers.steps // numbers.packed

    @property
    def _are_all_held(self) -> bool:
        return self._held == self.panels.count

    @property
    def _all_lines(self) -> int:
        return TILES * self.panels.blocks * self._lines

    def first(self, at: Task) -> list[Any]:
        """See :class:`TilesOfWeights`."""
        loops, count = self.panels.loops, self.panels.count if self._are_all_held else 1
        return [loops.loop(count, lambda number: loops.loop(self._all_lines, lambda line: self._cut(line, at, number)))]

    def next(self, at: Task, number: Any, pair: Any, block: Any) -> list[Any]:
        """See :class:`TilesOfWeights`."""
        panels, loops = self.panels, self.panels.loops
        if self._are_all_held:
            return []
        following = tirx.min(number + 1, loops.number(panels.count - 1))
        each = math.ceil(self._all_lines / (panels.pairs * panels.blocks))
        start, last = (pair * panels.blocks + block) * each, loops.number(self._all_lines - 1)

        def share(index: Any) -> Any:
            return self._cut(tirx.min(start + index, last), at, following)

        return [loops.loop(each, share, tirx.ForKind.UNROLLED)]

    def loaded(self, register: int, at: Task, number: Any, block: Any, part: int, column: int) -> Any:
        """See :class:`TilesOfWeights`."""
        place = [tirx.floormod(number, self._held), block, *map(self.panels.loops.number, (part, column, 0, 0))]
        return matrix_unit.loaded_tile(register, self._panel, place)

    def _cut(self, line: Any, at: Task, number: Any) -> Any:
        """The parts of a row of a tile; rows are counted as they lie in memory."""
        panels, numbers = self.panels, self.panels.product.numbers
        loops, packed, lines = panels.loops, numbers.packed, LANES // numbers.packed
        each = panels.blocks * self._lines
        column, rest = tirx.floordiv(line, each), tirx.floormod(line, each)
        block, own = tirx.floordiv(rest, self._lines), tirx.floormod(rest, self._lines)
        vector = (at.piece * panels.blocks + block) * numbers.vectors + tirx.floordiv(own, lines)
        step = tirx.floormod(own, lines) * packed

        def value(which: int) -> Callable[[Any], Any]:
            def store(lane: Any) -> Any:
                places = panels.places(at, number, column, lane, vector, step + which)
                found = substitute(panels.product.weights.value, places)
                found = panels.product.or_zero(panels.run(vector, step + which), found)
                return tirx.BufferStore(self._vector, found, [which, lane])

            return store

        def stored(part: int) -> Callable[[Any], Any]:
            def store(lane: Any) -> Any:
                steps = [tirx.BufferLoad(self._vector, [which, lane]) for which in range(packed)]
                row = numbers.row_of_weights([numbers.part(step, part) for step in steps])
                place = [tirx.floormod(number, self._held), block, loops.number(part), column, own, lane]
                return tirx.BufferStore(self._panel, row, place)

            return store

        values = [loops.vectors(value(which)) for which in range(packed)]
        return sequence([*values, *(loops.vectors(stored(part)) for part in range(numbers.parts))])
