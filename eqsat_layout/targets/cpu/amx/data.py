"""The tiles of data: cut before a core goes over the weights, or loaded from where they lie.

In: a product and how it is cut. Out: the statements that prepare rows, and those that load tiles of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from tvm import tirx

from eqsat_layout.targets.cpu.amx import instructions as matrix_unit
from eqsat_layout.targets.cpu.amx.axes import LANES
from eqsat_layout.targets.cpu.amx.image import Image
from eqsat_layout.targets.cpu.amx.products import MatrixProduct
from eqsat_layout.targets.cpu.amx.statements import Loops, Task
from eqsat_layout.targets.cpu.amx.tile_plan import BLOCK_ROWS, TILES
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import substitute

_RUN = 128  # steps along memory, from which on rows are read one by one, as prefetch follows them
_UNROLLED = 32  # runs of a row


@dataclass(frozen=True)
class Rows:
    """The rows of a product: a task has chunks of ``pairs`` pairs of tiles, and a piece of ``blocks`` blocks of steps.

    ``places``: of a row of the chunk, along the axes of rows.
    """

    product: MatrixProduct
    loops: Loops
    pairs: int
    blocks: int
    places: Callable[[Any], dict[Any, Any]]

    def places_of(self, at: Task, row: Any) -> dict[Any, Any]:
        """Those, and along the axes that all rows of a task share."""
        return self.product.shared_places(at.batch) | self.places(row)

    def vector(self, at: Task, block: Any) -> Any:
        """The first vector of steps of a block."""
        return (at.piece * self.blocks + block) * self.product.numbers.vectors


class TilesOfData(Protocol):
    """Where tiles of data come from."""

    @property
    def buffers(self) -> Sequence[Any]:
        """Of its own."""

    @property
    def loaded_from(self) -> Sequence[Any]:
        """Of them, those that tiles are loaded from."""

    def first(self, at: Task, pairs: Any) -> list[Any]:
        """Statements before all panels of a piece."""

    def loaded(self, register: int, at: Task, pair: Any, block: Any, part: int, row: int) -> Any:
        """One of the tiles of a pair in a register."""

    def number(self, at: Task, row: Any) -> Any:
        """Which of all rows is row ``row`` of the chunk's tiles."""

    def results(self, count: Any) -> Any:
        """How many rows of a pair are stored, where ``count`` are left."""


def tiles_of_data(rows: Rows) -> TilesOfData:
    """From where they lie if they lie in tiles."""
    if rows.product.image is not None:
        return DataInImage(rows, rows.product.image)
    stride = rows.product.data_stride
    return CutData(rows) if stride is None else DataInPlace(rows, stride)


@dataclass(frozen=True)
class DataInPlace:
    """Tiles whose rows are ``stride`` elements apart. The last tile overlaps the one before."""

    rows: Rows
    stride: int

    buffers: ClassVar[Sequence[Any]] = ()
    loaded_from: ClassVar[Sequence[Any]] = ()

    def first(self, at: Task, pairs: Any) -> list[Any]:
        """See :class:`TilesOfData`."""
        return []

    def loaded(self, register: int, at: Task, pair: Any, block: Any, part: int, row: int) -> Any:
        """See :class:`TilesOfData`."""
        rows, product, zero = self.rows, self.rows.product, self.rows.loops.number(0)
        own = product.rows.at(self._tile(at, pair * TILES + row))
        steps = product.steps.at_run(rows.vector(at, block), zero)
        start = substitute(product.data.value, product.shared_places(at.batch) | own | steps)
        return matrix_unit.loaded_tile(
            register, start.source, list(start.indices), self.stride * product.numbers.part_bytes
        )

    def number(self, at: Task, row: Any) -> Any:
        """See :class:`TilesOfData`."""
        return self._tile(at, tirx.floordiv(row, matrix_unit.ROWS)) + tirx.floormod(row, matrix_unit.ROWS)

    def results(self, count: Any) -> Any:
        """See :class:`TilesOfData`."""
        return tirx.floordiv(count + (matrix_unit.ROWS - 1), matrix_unit.ROWS) * matrix_unit.ROWS

    def _tile(self, at: Task, tile: Any) -> Any:
        """The first row of a tile."""
        last = self.rows.loops.number(self.rows.product.rows.extent - matrix_unit.ROWS)
        return tirx.min(at.first + tile * matrix_unit.ROWS, last)


@dataclass(frozen=True)
class _Cut:
    """Tiles of what is cut into parts first, in which every row is there once."""

    rows: Rows

    def number(self, at: Task, row: Any) -> Any:
        """See :class:`TilesOfData`; the last one again for those that are too many."""
        return tirx.min(at.first + row, self.rows.loops.number(self.rows.product.rows.extent - 1))

    def results(self, count: Any) -> Any:
        """See :class:`TilesOfData`."""
        return count

    @cached_property
    def _vector(self) -> Any:
        return tirx.decl_buffer((LANES,), self.rows.product.numbers.dtype, "vector", scope="local")

    def _parts(self, buffer: Any, place: Callable[[int, Any], list[Any]]) -> list[Any]:
        """The parts of the vector in ``buffer``; ``place`` of a part and a lane."""
        numbers, loops = self.rows.product.numbers, self.rows.loops

        def stored(number: int) -> Callable[[Any], Any]:
            def store(lane: Any) -> Any:
                bits = numbers.part(tirx.BufferLoad(self._vector, [lane]), number)
                return tirx.BufferStore(buffer, bits, place(number, lane))

            return store

        return [loops.vectors(stored(number)) for number in range(numbers.parts)]


@dataclass(frozen=True)
class DataInImage(_Cut):
    """Tiles of the pixels of an image, which is cut once, with its border."""

    image: Image

    @property
    def buffers(self) -> Sequence[Any]:
        """See :class:`TilesOfData`."""
        return (self._pixels, self._vector)

    @property
    def loaded_from(self) -> Sequence[Any]:
        """See :class:`TilesOfData`."""
        return (self._pixels,)

    @cached_property
    def _pixels(self) -> Any:
        numbers, image = self.rows.product.numbers, self.image
        count = image.lines(self.rows.pairs * BLOCK_ROWS) * image.line
        return tirx.decl_buffer((numbers.parts, count, image.channels.extent), numbers.part_dtype, "pixels")

    def first(self, at: Task, pairs: Any) -> list[Any]:
        """See :class:`TilesOfData`."""
        image, loops = self.image, self.rows.loops
        held = loops.number(int(self._pixels.ty.shape[1]) // image.line)
        start = tirx.floordiv(at.first, image.line)
        pixels = tirx.min(held, loops.number(image.extents[0]) - start) * image.line
        vectors = image.channels.vectors

        def cut(pixel: Any, vector: Any) -> Any:
            return self._cut(at, start * image.line, pixel, vector)

        if len(image.channels.axes) > 1:  # blocks of channels are far from each other in memory
            return [loops.loop(vectors, lambda vector: loops.loop(pixels, lambda pixel: cut(pixel, vector)))]
        return [loops.loop(pixels, lambda pixel: loops.loop(vectors, lambda vector: cut(pixel, vector)))]

    def loaded(self, register: int, at: Task, pair: Any, block: Any, part: int, row: int) -> Any:
        """See :class:`TilesOfData`."""
        rows, image, number = self.rows, self.image, self.rows.loops.number
        steps = rows.product.steps.at_run(rows.vector(at, block), number(0))
        own = tirx.floormod(at.first, image.line) + (pair * TILES + row) * matrix_unit.ROWS
        place = [number(part), own + image.pixel(steps), image.channel(steps)]
        return matrix_unit.loaded_tile(
            register, self._pixels, place, image.channels.extent * rows.product.numbers.part_bytes
        )

    def _cut(self, at: Task, start: Any, pixel: Any, vector: Any) -> Any:
        """The parts of a vector of channels of a pixel."""
        product, image, loops = self.rows.product, self.image, self.rows.loops
        places = product.shared_places(at.batch) | image.at(start + pixel, loops.number(0))

        def value(lane: Any) -> Any:
            found = substitute(product.data.value, places | image.channels.at_run(vector, lane))
            return tirx.BufferStore(self._vector, found, [lane])

        def place(number: int, lane: Any) -> list[Any]:
            return [loops.number(number), pixel, vector * LANES + lane]

        return sequence([loops.vectors(value), *self._parts(self._pixels, place)])


@dataclass(frozen=True)
class CutData(_Cut):
    """Tiles that are cut for every step, so that what several windows read is cut several times."""

    @property
    def buffers(self) -> Sequence[Any]:
        """See :class:`TilesOfData`."""
        return (self._tiles, self._vector)

    @property
    def loaded_from(self) -> Sequence[Any]:
        """See :class:`TilesOfData`."""
        return (self._tiles,)

    @cached_property
    def _tiles(self) -> Any:
        rows, numbers = self.rows, self.rows.product.numbers
        shape = (rows.pairs, rows.blocks, numbers.parts, TILES, matrix_unit.ROWS, numbers.steps)
        return tirx.decl_buffer(shape, numbers.part_dtype, "parts")

    def first(self, at: Task, pairs: Any) -> list[Any]:
        """See :class:`TilesOfData`."""
        loop, blocks = self.rows.loops.loop, self.rows.blocks

        def pair_of(pair: Any) -> Any:
            def cut(block: Any, row: Any) -> Any:
                return self._cut(at, pair, block, row)

            if self._unrolls or (self.rows.product.steps.axes[-1].extent or 0) >= _RUN:
                kind = tirx.ForKind.UNROLLED if self._unrolls else tirx.ForKind.SERIAL
                return loop(BLOCK_ROWS, lambda row: loop(blocks, lambda block: cut(block, row), kind))
            return loop(blocks, lambda block: loop(BLOCK_ROWS, lambda row: cut(block, row)))

        return [loop(pairs, pair_of)]

    @property
    def _unrolls(self) -> bool:
        """So that it is known where in a run a step is."""
        each = self.rows.product.steps.runs_of_vector
        return each > 1 and self.rows.blocks * self.rows.product.numbers.vectors * each <= _UNROLLED

    def loaded(self, register: int, at: Task, pair: Any, block: Any, part: int, row: int) -> Any:
        """See :class:`TilesOfData`."""
        place = [pair, block, *map(self.rows.loops.number, (part, row, 0, 0))]
        return matrix_unit.loaded_tile(register, self._tiles, place)

    def _cut(self, at: Task, pair: Any, block: Any, row: Any) -> Any:
        """The parts of one row of a block."""
        product, loops = self.rows.product, self.rows.loops
        numbers, steps = product.numbers, product.steps
        places = self.rows.places_of(at, pair * BLOCK_ROWS + row)
        tile, line = tirx.floordiv(row, matrix_unit.ROWS), tirx.floormod(row, matrix_unit.ROWS)

        def vector(which: int) -> list[Any]:
            first = (self.rows.vector(at, block) + which) * steps.runs_of_vector

            def value(place: int) -> Callable[[Any], Any]:
                run = first + place

                def store(lane: Any) -> Any:
                    found = product.or_zero(run, substitute(product.data.value, places | steps.at_run(run, lane)))
                    is_new = steps.is_new(run, lane)
                    if is_new is not None:
                        found = tirx.Select(is_new, found, product.zero)
                    return tirx.BufferStore(self._vector, found, [place * steps.lanes + lane])

                return store

            def place(number: int, lane: Any) -> list[Any]:
                return [pair, block, loops.number(number), tile, line, lane + which * LANES]

            runs = [loops.loop(steps.lanes, value(n), tirx.ForKind.VECTORIZED) for n in range(steps.runs_of_vector)]
            return [*runs, *self._parts(self._tiles, place)]

        return sequence([statement for which in range(numbers.vectors) for statement in vector(which)])
