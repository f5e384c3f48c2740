"""How well a kernel fills vector registers under given formats.

In: a computation and the formats of its operands and results. Out: the share of peak arithmetic that the innermost axis
of the result allows. Read off the addresses that neighbouring lanes touch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_layout.cached_property import cached_property
from eqsat_layout.cost.addresses import (
    address_step,
    axis_of,
    elements_between_lookups,
    format_of,
    lane_step,
    lanes_along,
    lanes_in_memory,
    place_variables,
    reach,
)
from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.computation import SYMBOL_SIZE, Access, Block, Computation, assumed_size
from eqsat_layout.tir.flow import complete
from eqsat_layout.tir.index_values import Points

SLIDING = 0.6
"""Share of peak where vectors of the *shared* operand slide (a convolution along the width), as long as cache lines:
each is read from two of them."""
_FAR = 0.85
"""Share left where the vectors of a reduction lie far apart: each step opens another cache line and page."""
_NEAR = 64
"""Elements up to which the next step's vector counts as near."""
_HALVES = 0.5
"""Share of peak where a load has blocks of half a vector."""
_ALONE = 0.7
"""Share left where a vector is all that an element is broadcast for, and not full: as many loads as products."""
_STRIDED = 0.25
"""Share of peak where lanes are two elements apart: two loads and a shuffle."""
MOST_PHASES = 8
"""Elements that lanes may be apart for their windows' data to be copied so that they lie side by side."""
_OVERLAPPED = 1.15
"""Times as many elements as there are, up to which a last vector begins earlier where no vector divides a row."""
_PICKED = 2
"""Vectors that elements are picked out of at once."""
_GATHERED = 0.03
"""Share of peak where lanes are further apart: element by element, no tile of registers (measured: 1/37 to 1/40)."""
_DOT = 0.3
"""Share of peak of dot products: vectors along the reduction, their lanes to be added up."""
_WIDENED = 0.3
"""Share of peak of products of bytes that are made numbers of 32 bits first."""
_IN_TILES = 2.5
"""Times as many products of words where a unit multiplies tiles of them (measured on a Xeon: 2.3 to 3.2)."""


@dataclass(frozen=True)
class Heaviest:
    """The block of a computation that has the most iterations, under given formats.

    ``reads``: those whose formats are known, ``is_known``: that is all of them. ``step``: between neighbouring lanes of
    the result: the variable, how far it moves, and how often. ``written``: the format of the result. ``word``: bytes of
    each factor that are multiplied and added up together, 1 for what is no product of such; ``tile_row`` bytes are in a
    row of a tile of such words, 0 where no unit multiplies tiles.
    """

    block: Block
    operands: tuple[int, ...]
    reads: tuple[tuple[Access, Format], ...]
    is_known: bool
    step: tuple[int, int, int] | None
    written: Format
    word: int = 1
    tile_row: int = 0

    def efficiency(self, lanes: int, *, sliding: float = SLIDING, in_phases: bool = False) -> float:
        """Share of peak arithmetic of floats, which words are beyond; ``lanes`` elements fit a vector register.

        ``sliding``: the share that is left where vectors of a convolution's data slide along it.
        ``in_phases``: kernels copy what :meth:`strided` windows read, and slide along the copy.
        """
        share = self._share(lanes, sliding, in_phases)
        return share * self.word if self.is_in_words else share * _WIDENED if self.word > 1 else share

    def _share(self, lanes: int, sliding: float, in_phases: bool) -> float:
        block = self.block
        copied = {read.buffer for read, _ in self.strided} if in_phases else set[int]()
        dots = _DOT if self._is_dot(lanes) else 0.0
        if self.step is None:
            return max(dots, _GATHERED)
        variable, stride, extent = self.step
        row = extent if block.is_contraction else max(extent, self.run)  # a kernel that streams goes on in the next row
        share = row / (math.ceil(row / lanes) * lanes)
        count = min(extent, lanes)
        for read, fmt in self.reads:
            moved = self._moved(read, fmt, variable, stride, 1)
            if moved == 0:
                is_short = block.is_contraction and block.extents[variable] == extent < lanes
                share *= _ALONE if is_short and not self._is_shared(read, fmt, variable) else 1.0
                continue
            if moved is None and not block.is_contraction:
                continue  # its elements are looked up one by one, see lookups
            if moved is None or self._moved(read, fmt, variable, stride, count - 1) != moved * (count - 1):
                half = count // 2
                in_halves = moved == 1 and self._moved(read, fmt, variable, stride, half - 1) == half - 1 > 0
                share = min(share, _HALVES if in_halves else _GATHERED)
            elif moved == 1 or read.buffer in copied:
                if block.is_contraction and variable in read.sliding:
                    is_shared = self._is_shared(read, fmt)
                    share = share if is_shared else min(share, _share_of_rows(extent, lanes))
                    share *= sliding if is_shared else min(sliding, SLIDING)
            else:
                share = min(share, _STRIDED if moved == 2 else _GATHERED)
        share *= _FAR if self._far else 1.0
        return max(dots, share * _IN_TILES if self.is_in_tiles else share)

    def lookups(self, lanes: int) -> float:
        """Elements that are looked up one by one for each of the result, since lanes lie where numbers say that are no
        sums of digits.

        A vector whose lanes lie near each other, as those of a resize do, is picked out of two: one for all of it. So
        is one over rows too short for vectors, else the pieces of these that are one load. One for each run whose place
        is looked up; one for all that lie where data say.
        """
        if self.step is None or self.block.is_contraction:
            return 0
        variable, stride, extent = self.step
        block, write = self.block, self.block.writes[0]
        reads = [(read, fmt) for read, fmt in self.reads if self._moved(read, fmt, variable, stride, 1) is None]
        points: Points | None = lanes_along(block, variable, lanes)
        is_short = not reads and max(extent, self.run) < lanes
        if is_short:
            reads, points = list(self.reads), lanes_in_memory(block, write, self.written, lanes)
        reached = [None if points is None else reach(read, fmt, points) for read, fmt in reads]
        unknown, far = reached.count(None), sum((near or 0) > _PICKED * lanes for near in reached)
        if is_short and unknown + far:
            return len(reads) / (self.run & -self.run)
        runs = [elements_between_lookups(block, read, write, self.written) for read, _ in self.reads]
        places = sum(1 / run for run in runs if run is not None and run >= lanes)
        return places + far + min(1, unknown) + (len(reads) - far - unknown) / lanes

    @cached_property
    def is_in_words(self) -> bool:
        """A product of bytes whose factors lie in words along a variable of the reduction."""
        last = self.word - 1
        return last > 0 and any(
            all(
                address_step(self.block, read, fmt, v, 1, last) == last and address_step(self.block, read, fmt, v, 1, 1)
                for read, fmt in self.reads
            )
            for v in self.block.reduced
        )

    @cached_property
    def is_in_tiles(self) -> bool:
        """Words of one factor lie side by side in whole rows of tiles."""
        last = self.tile_row - 1
        return (
            self.is_in_words
            and last > 0
            and any(
                address_step(self.block, read, fmt, v, 1, last) == last
                for v in self.block.reduced
                for read, fmt in self.reads
            )
        )

    def _moved(self, read: Access, fmt: Format, variable: int, stride: int, steps: int) -> int | None:
        """Elements, or words, by which an address moves in ``steps`` lanes."""
        question = (id(read), variable, stride, steps)  # each of ``reads`` has one format
        if question not in self._moves:
            moved = address_step(self.block, read, fmt, variable, stride, steps)
            if moved is not None and self.is_in_words:
                moved = None if moved % self.word else moved // self.word
            self._moves[question] = moved
        return self._moves[question]

    @cached_property
    def _moves(self) -> dict[tuple[int, int, int, int], int | None]:
        return {}

    def _is_shared(self, read: Access, fmt: Format, lane: int | None = None) -> bool:
        """Its vectors are for several elements of the result; not so in depthwise windows, which read one a product.

        ``lane``: a variable that does not count.
        """
        block = self.block
        long = (v for v, extent in enumerate(block.extents) if block.is_spatial(v) and extent != 1 and v != lane)
        return any(address_step(block, read, fmt, v, 1, 1) == 0 for v in long)

    @cached_property
    def strided(self) -> tuple[tuple[Access, Format], ...]:
        """The reads of windows that move by strides from one lane to the next."""
        if self.step is None or not self.block.is_contraction:
            return ()
        variable, stride, extent = self.step
        most = min(MOST_PHASES, extent)
        sliding = [(read, fmt) for read, fmt in self.reads if variable in read.sliding]
        return tuple(
            (read, fmt)
            for read, fmt in sliding
            if 1 < (address_step(self.block, read, fmt, variable, stride, 1) or 0) <= most
        )

    @property
    def padded(self) -> tuple[tuple[Access, Format], ...]:
        """The reads of windows that slide along vectors of what is made for them: of data with a border."""
        if self.step is None or not self.block.is_contraction:
            return ()
        variable = self.step[0]
        own = [(read, fmt) for read, fmt in self.reads if read.buffer not in self.operands and variable in read.sliding]
        return tuple(one for one in own if one not in self.strided)

    @cached_property
    def run(self) -> int:
        """Elements of the result that lie side by side, or are the same one, in everything that is read."""
        block, run = self.block, 1
        for digit in reversed(self.written.index_map.flat_digits):
            variable = axis_of(block, block.writes[0].indices[digit.axis])
            if digit.extent == 1:
                continue
            if variable is None:
                break
            moved = {address_step(block, read, own, variable, digit.stride, 1) for read, own in self.reads}
            if not moved <= {0, run}:
                break
            run *= assumed_size(digit.extent)
        return run

    @property
    def weights(self) -> frozenset[int]:
        """Numbers of the operands of a contraction that are no data: by convention these are the first operand."""
        return frozenset(range(1, len(self.operands))) if self.block.is_contraction else frozenset()

    @cached_property
    def scattered_operands(self) -> frozenset[int]:
        """Numbers of the operands of which every step reads vectors elsewhere, and each element only once."""
        return self._read_once(self._far)

    def row_operands(self, lanes: int) -> frozenset[int]:
        """Numbers of the weights that vectors along the reduction run through, a row for each element of the result."""
        once = self.weights and self.weights & self._read_once(self.reads)
        return once if once and self._is_dot(lanes) else frozenset()

    def _read_once(self, reads: Sequence[tuple[Access, Format]]) -> frozenset[int]:
        """Numbers of the operands of which each element is read only once."""
        once = {read.buffer for read, fmt in reads if self.block.iterations <= fmt.elements(SYMBOL_SIZE)}
        return frozenset(i for i, buffer in enumerate(self.operands) if buffer in once)

    @property
    def stalling_operands(self) -> frozenset[int]:
        """Numbers of the weights of which tiles read narrow strips: a page and a cache miss for each step.

        Not of those that are batched as the data is (attention): these were made just before.
        """
        if not self._far:
            return frozenset()
        data = [read for read, _ in self.reads if read.buffer == self.operands[0]]
        strips = {read.buffer for read, _ in self._far if not any(self._is_batched(read, other) for other in data)}
        return frozenset(i for i in self.weights - self.scattered_operands if self.operands[i] in strips)

    def _is_batched(self, read: Access, other: Access) -> bool:
        shared = place_variables(read) & place_variables(other)
        return any(self.block.is_spatial(variable) and self.block.extents[variable] != 1 for variable in shared)

    @cached_property
    def _far(self) -> list[tuple[Access, Format]]:
        if self.step is None or not self.block.is_contraction:
            return []
        variable, stride, _ = self.step
        still = [(read, fmt) for read, fmt in self.reads if variable not in read.sliding]
        side_by_side = [one for one in still if self._moved(*one, variable, stride, 1) == 1]
        return [one for one in side_by_side if not _steps_near(self.block, *one)]

    def _is_dot(self, lanes: int) -> bool:
        """All operands lie contiguous along one long variable of the reduction."""
        block = self.block
        for variable in block.reduced:
            extent = block.extents[variable]
            if not isinstance(extent, int) or extent < 4 * lanes:
                continue
            if self.is_known and all(
                address_step(block, r, f, variable, 1, lanes - 1) == lanes - 1 for r, f in self.reads
            ):
                return True
        return False


def heaviest(
    computation: Computation, operands: Formats, results: Formats, word: int = 1, tile_row: int = 0
) -> Heaviest | None:
    """The block of ``computation`` that has the most iterations, of copies the one that writes the result.

    ``None`` if its result has no known format. ``word``, ``tile_row``: see :class:`Heaviest`.
    """
    question = ("heaviest", *operands, *results, word, tile_row)
    if question not in computation.derived:
        computation.derived[question] = _heaviest(computation, operands, results, word, tile_row)
    found: Heaviest | None = computation.derived[question]
    return found


def _heaviest(
    computation: Computation, operands: Formats, results: Formats, word: int, tile_row: int
) -> Heaviest | None:
    formats = dict(zip(computation.operands, operands, strict=True))
    formats |= dict(zip(computation.results, results, strict=True))
    blocks = computation.blocks
    if not computation.flops:  # pads become part of what copies their elements
        blocks = tuple(b for b in blocks if any(w.buffer in computation.results for w in b.writes)) or blocks
    block = max(blocks, key=lambda b: b.iterations, default=None)
    if block is None:
        return None
    found = [format_of(computation, read, formats) for read in block.reads]
    if None in found:
        whole = complete(computation, operands, results)  # what is made on the way lies as its makers find natural
        formats |= dict(zip(computation.internal, whole.internal, strict=True))
        found = [format_of(computation, read, formats) for read in block.reads]
    written = None if len(block.stores) != 1 else format_of(computation, block.writes[0], formats)
    if written is None:
        return None
    known = [(read, fmt) for read, fmt in zip(block.reads, found, strict=True) if fmt is not None]
    step = lane_step(block, block.writes[0], written)
    is_known = len(known) == len(block.reads)
    own = word if computation.multiplies_bytes(block) and is_known else 1
    return Heaviest(block, tuple(computation.operands), tuple(known), is_known, step, written, own, tile_row)


def _share_of_rows(extent: int, lanes: int) -> float:
    """The share of peak where vectors that no others share slide along rows: what is left of one is read in pieces."""
    whole, rest = divmod(extent, lanes)
    if whole and math.ceil(extent / lanes) * lanes < _OVERLAPPED * extent:
        return extent / (math.ceil(extent / lanes) * lanes)
    return extent / (lanes * (whole + rest.bit_count()))


def _steps_near(block: Block, read: Access, fmt: Format) -> bool:
    """The innermost step of the reduction that moves ``read`` moves it by little."""
    moved = [abs(address_step(block, read, fmt, i, 1, 1) or 0) for i in block.reduced if block.extents[i] != 1]
    return min((m for m in moved if m), default=0) <= _NEAR
