"""The tiles of data, cut before a core goes over the weights.

In: a product and how it is cut. Out: the statements that fill tiles with rows, and those that load them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.products import LANES, MatrixProduct
from eqsat_layout.targets.cpu.amx.statements import Loops
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, TILES
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import substitute

_RUN = 128  # steps along memory, from which on rows are read one by one, as prefetch follows them
_UNROLLED = 32  # runs of a row


@dataclass(frozen=True)
class CutData:
    """Parts of ``pairs`` pairs of tiles of rows, of which each has ``blocks`` blocks of steps."""

    product: MatrixProduct
    loops: Loops
    blocks: int
    pairs: int

    @property
    def buffers(self) -> list[Any]:
        """Of its own."""
        return [self._tiles, self._vector]

    @property
    def whole(self) -> list[Any]:
        """Of them, those that tiles are loaded from."""
        return [self._tiles]

    @cached_property
    def _tiles(self) -> Any:
        numbers = self.product.numbers
        shape = (self.pairs, self.blocks, numbers.parts, TILES, matrix_unit.ROWS, numbers.steps)
        return tirx.decl_buffer(shape, numbers.part_dtype, "parts")

    @cached_property
    def _vector(self) -> Any:
        return tirx.decl_buffer((LANES,), self.product.numbers.dtype, "vector", scope="local")

    def cut(self, pair: Any, piece: Any, places_of: Callable[[Any], dict[Any, Any]]) -> Any:
        """All parts of a pair; ``places_of`` a row of it, those along the axes of batch and rows."""
        loop = self.loops.loop

        def block_of(block: Any, row: Any) -> Any:
            return self._row(pair, block, row, piece, places_of(row))

        if self._unrolls or (self.product.steps.axes[-1].extent or 0) >= _RUN:
            kind = tirx.ForKind.UNROLLED if self._unrolls else tirx.ForKind.SERIAL
            return loop(BLOCK_ROWS, lambda row: loop(self.blocks, lambda block: block_of(block, row), kind))
        return loop(self.blocks, lambda block: loop(BLOCK_ROWS, lambda row: block_of(block, row)))

    @property
    def _unrolls(self) -> bool:
        """Where in a run is then known."""
        each = self.product.steps.runs_of_vector
        return each > 1 and self.blocks * self.product.numbers.vectors * each <= _UNROLLED

    def loaded(self, register: int, pair: Any, block: Any, part: int, row: int) -> Any:
        """One of the tiles of a block in a register."""
        return matrix_unit.loaded(
            register, self._tiles, [pair, block, *map(self.loops.number, (part, row, 0, 0))]
        )

    def _row(self, pair: Any, block: Any, row: Any, piece: Any, places: dict[Any, Any]) -> Any:
        """The parts of one row of a block."""
        product, numbers = self.product, self.product.numbers
        tile, line = tirx.floordiv(row, matrix_unit.ROWS), tirx.floormod(row, matrix_unit.ROWS)
        lanes, each = product.steps.lanes, product.steps.runs_of_vector

        def vector(which: int) -> list[Any]:
            first = ((piece * self.blocks + block) * numbers.vectors + which) * each

            def value(place: int) -> Callable[[Any], Any]:
                run = first + place

                def store(lane: Any) -> Any:
                    found = product.or_zero(run, substitute(product.data.value, places | product.steps.at_run(run, lane)))
                    is_new = product.steps.is_new(run, lane)
                    if is_new is not None:
                        found = tirx.Select(is_new, found, product.zero)
                    return tirx.BufferStore(self._vector, found, [place * lanes + lane])

                return store

            def stored(number: int) -> Callable[[Any], Any]:
                def store(lane: Any) -> Any:
                    bits = numbers.part(tirx.BufferLoad(self._vector, [lane]), number)
                    place = [pair, block, self.loops.number(number), tile, line, lane + which * LANES]
                    return tirx.BufferStore(self._tiles, bits, place)

                return store

            runs = [self.loops.loop(lanes, value(place), tirx.ForKind.VECTORIZED) for place in range(each)]
            return [*runs, *(self.loops.vectors(stored(number)) for number in range(numbers.parts))]

        return sequence([statement for which in range(numbers.vectors) for statement in vector(which)])
