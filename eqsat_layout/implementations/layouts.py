"""Implementations that an op could have in other layouts than it was written in.

In: the computation of a contraction (convolutions, matrix products and their kin) and the :class:`Blocking` that a
target likes. Out: :class:`Candidate` flows. Everything is read off the block: which variable the lanes of a vector can
run along, and which reduced one is its partner in the operand that the previous contraction wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eqsat_layout.errors import LayoutError
from eqsat_layout.implementations.blocked_formats import axis_last, blocked, in_blocks, padded_at_end
from eqsat_layout.maps import Extent, Format, Formats, element_bits
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation
from eqsat_layout.tir.flow import Flow, backward, complete

_LAST: Final = "channels last"


@dataclass(frozen=True)
class Blocking:
    """The blocks that a target's kernels like channels in: ``sizes``, ascending.

    An axis that no block divides is padded, unless one of at least ``roomy`` elements does divide it, or it would grow
    by more than ``most_waste`` times. ``few``: data of fewer channels may lie as it is written, since kernels broadcast
    each of its elements, wherever it is (0: they do not). ``word``: so many bytes of both factors of a product of them,
    neighbours along the reduction, are multiplied and added up together (0: the target does no such thing).
    ``moved``: elements that one copy to shared memory moves, ascending: data of fewer channels than the most of them
    may be padded to the next of these numbers, however much it grows; results may lie otherwise than the data.
    """

    sizes: tuple[int, ...] = ()
    roomy: int = 8
    most_waste: float = 1.34
    few: int = 0
    word: int = 0
    moved: tuple[int, ...] = ()

    def pads(self, extent: int, block: int) -> bool:
        """Whether an axis of ``extent`` is worth padding for this block."""
        has_other = any(extent % size == 0 and size >= self.roomy for size in self.sizes)
        return not has_other and extent + -extent % block <= extent * self.most_waste


@dataclass(frozen=True)
class Candidate:
    """One implementation: how the op is run, and what it is called in reports."""

    name: str
    flow: Flow


def layout_candidates(computation: Computation, blocking: Blocking) -> tuple[Candidate, ...]:
    """Layouts in which vectors run along the channels of a contraction's result: those last, and in blocks.

    ``()`` for what is no contraction, or one that has no such axis, or is in blocks already. The operand that the other
    one multiplies (the weight) is packed so that a vector of it is contiguous.
    """
    contraction = _Contraction.of(computation)
    if contraction is None:
        return ()
    if contraction.is_of_bytes(blocking.word):
        contraction = replace(contraction, word=blocking.word)
    offered: list[Candidate | None] = []
    for name, fmt, block in contraction.result_formats(blocking):
        for flow in backward(computation, 0, fmt, contractions=True, most=1)[:1] or (None,):
            offered.append(contraction.candidate(name, fmt, block, flow))
        if not fmt.is_row_major and contraction.has_few_channels(blocking.few):
            offered.append(contraction.of_plain_data(name, fmt, block))
        if blocking.moved and flow is not None and name == _LAST:
            offered.append(contraction.of_padded_data(fmt, block, flow, blocking.moved))
        if blocking.moved and flow is not None and (name == _LAST or contraction.has_bytes_only):
            offered.append(contraction.of_plain_result(flow))
    offered.append(contraction.dots())
    found: dict[Flow, Candidate] = {}
    for candidate in offered:
        if candidate is not None:
            found.setdefault(candidate.flow, candidate)
    return tuple(found.values())


def is_plain_contraction(computation: Computation) -> bool:
    """It has channels in one axis, so that none of its operands lies in blocks that somebody chose already."""
    return _Contraction.of(computation) is not None


@dataclass(frozen=True)
class _Contraction:
    """The contraction block, the variable ``lane`` of the result's channels, and its reduced ``partner``.

    ``word``: elements of the partner that lie side by side in the weights, after the lanes (0: none do).
    """

    computation: Computation
    block: Block
    lane: int
    axis: int
    partner: int | None
    word: int = 0

    @staticmethod
    def of(computation: Computation) -> _Contraction | None:
        blocks = [b for b in computation.blocks if b.is_contraction]
        if len(blocks) != 1 or len(computation.results) != 1 or len(computation.operands) < 2:
            return None
        (block,) = blocks
        if block.writes[0].buffer != computation.results[0]:
            return None
        axes = {block.variable(index): axis for axis, index in enumerate(block.writes[0].indices)}
        pairs = [pair for pair in block.pairs if pair[0] in axes]
        if len({operand for _, _, operand in pairs}) < len(pairs):
            return None  # channels in several axes: in blocks already
        shared = [v for v in axes if v is not None and _is_shared(block, v)]
        if pairs:
            # a product of matrices is symmetric: by convention the first operand is the data, the second the weight
            lane, partner, _ = min(pairs, key=lambda pair: (pair[2] in computation.operands[1:], -axes[pair[0]]))
            return _Contraction(computation, block, lane, axes[lane], partner)
        if len(shared) == 1:  # depthwise: the channels of the result are those of the data
            return _Contraction(computation, block, shared[0], axes[shared[0]], None)
        return None

    @property
    def shape(self) -> tuple[Extent, ...]:
        return self.computation.buffers[self.computation.results[0]].shape

    def is_of_bytes(self, word: int) -> bool:
        """It multiplies bytes, and words of so many fill the partner."""
        extent = None if self.partner is None else self.block.extents[self.partner]
        fills = word > 0 and isinstance(extent, int) and extent % word == 0
        return fills and self.computation.multiplies_bytes(self.block)

    @property
    def has_bytes_only(self) -> bool:
        """Which no instruction takes across the steps of a product."""
        return all(element_bits(self.computation.buffers[read.buffer].dtype) == 8 for read in self.block.reads)

    def result_formats(self, blocking: Blocking) -> Iterator[tuple[str, Format, int]]:
        """Formats of the result, with the block that the weights are packed in; the last axis needs no other."""
        shape, axis = self.shape, self.axis
        extent = shape[axis]
        if not isinstance(extent, int) or extent < 2:
            return
        widest = max((b for b in blocking.sizes if extent % b == 0), default=0)
        if all(e == 1 for e in shape[axis + 1 :]):  # the last that counts: a 1x1 image is a vector of channels
            yield "weights packed", Format.row_major(shape), widest or self._half_block(extent, blocking)
            for block in () if widest or self._is_one_row() else blocking.sizes:
                if blocking.pads(extent, block):  # read as they are, every step of the product opens another page
                    yield "weights packed in whole blocks", padded_at_end(shape, axis, block), block
            return
        yield _LAST, axis_last(shape, axis), widest
        for block in blocking.sizes:
            if extent % block and not blocking.pads(extent, block):
                continue
            yield f"blocks of {block}", blocked(shape, axis, block), block

    def _half_block(self, extent: int, blocking: Blocking) -> int:
        """Of one row of a result, whose weights take longer to arrive than vectors that are half empty; else 0."""
        half = min(blocking.sizes, default=0) // 2
        return half if self._is_one_row() and half > 1 and extent % half == 0 else 0

    def _is_one_row(self) -> bool:
        return all(e == 1 for axis, e in enumerate(self.shape) if axis != self.axis)

    def candidate(self, name: str, fmt: Format, block: int, flow: Flow | None) -> Candidate | None:
        """The op with its result in ``fmt`` and its weights packed in ``block``."""
        operands: list[Format | None] = list(flow.operands) if flow is not None else [None] * self._operands
        if flow is None and not fmt.is_row_major:
            return None
        for i, read in self._weights():
            data_block = block if name.startswith("blocks") and self._blocks_data(operands, i, block) else 0
            operands[i] = self._packed(read, block, data_block, is_last=self._is_partner_last(operands, i))
        return self._completed(name, operands, fmt)

    def has_few_channels(self, few: int) -> bool:
        """The data has fewer channels than so many: an image of three colours."""
        extent = None if self.partner is None else self.block.extents[self.partner]
        return isinstance(extent, int) and extent < few

    def of_plain_data(self, name: str, fmt: Format, block: int) -> Candidate | None:
        """The op with its result in ``fmt``, its weights packed in ``block``, and its data as it is written."""
        buffers = self.computation.buffers
        operands: list[Format | None] = [Format.row_major(buffers[n].shape) for n in self.computation.operands]
        for i, read in self._weights():
            operands[i] = self._packed(read, block, 0, is_last=False)
        return self._completed(f"{name}, data as it is", operands, fmt)

    def of_padded_data(self, fmt: Format, block: int, flow: Flow, moved: Sequence[int]) -> Candidate | None:
        """The op with the few channels of its data last, and as many as one copy moves."""
        extent = None if self.partner is None else self.block.extents[self.partner]
        size = next((size for size in moved if isinstance(extent, int) and size >= extent), extent)
        if not isinstance(size, int) or size == extent:
            return None
        operands: list[Format | None] = list(flow.operands)
        weights = dict(self._weights())
        for i, data in enumerate(flow.operands):
            last = data.index_map.flat_digits[-1]
            if i in weights:
                operands[i] = self._packed(weights[i], block, size, is_last=True)
            elif last.extent == extent == data.shape[last.axis]:
                operands[i] = in_blocks(data.shape, [(last.axis, size)])
        return self._completed(f"{_LAST}, data padded", operands, fmt)

    def of_plain_result(self, flow: Flow) -> Candidate | None:
        """The op with its result as it is written, and its weights with the partner last, as it is in the data."""
        if self.partner is None or not self._is_partner_last(flow.operands, -1):
            return None
        operands: list[Format | None] = list(flow.operands)
        for i, read in self._weights():
            plain = [self.block.variable(index) for index in read.indices]
            if self.partner in plain:
                operands[i] = axis_last(self.computation.buffers[read.buffer].shape, plain.index(self.partner))
        return self._completed("weights in step with the data", operands, Format.row_major(self.shape))

    def dots(self) -> Candidate | None:
        """One row of the result as dot products: the weights of each are one piece of memory, read only once."""
        if self.partner is None or not self._is_one_row():
            return None
        operands: list[Format | None] = [None] * self._operands
        for i, read in self._weights():
            plain = [self.block.variable(index) for index in read.indices]
            if self.partner in plain:
                operands[i] = axis_last(self.computation.buffers[read.buffer].shape, plain.index(self.partner))
        return self._completed("dot products", operands, Format.row_major(self.shape))

    def _weights(self) -> Iterator[tuple[int, Access]]:
        """The operands that are weights, by number, and how they are read."""
        for i, number in enumerate(self.computation.operands):
            reads = [r for r in self.block.reads if r.buffer == number]
            if len(reads) == 1 and self._is_weight(reads[0]):
                yield i, reads[0]

    def _completed(self, name: str, operands: Formats, result: Format) -> Candidate | None:
        try:
            whole = complete(self.computation, operands, [result])
        except LayoutError:
            return None
        return None if all(f.is_row_major for f in (*whole.operands, *whole.results)) else Candidate(name, whole)

    @property
    def _operands(self) -> int:
        return len(self.computation.operands)

    def _is_weight(self, read: Access) -> bool:
        """It varies along the lanes, and does not slide: each element is used for many elements of the result."""
        plain = [self.block.variable(index) for index in read.indices]
        slides = any(isinstance(i, Affine) and len(i.iters) > 1 for i in read.indices)
        written = {v for index in self.block.writes[0].indices for v in _iters(index)}
        used = {v for index in read.indices for v in _iters(index)}
        return self.lane in plain and not slides and len(written - used) > 0

    def _blocks_data(self, operands: Formats, weight: int, block: int) -> bool:
        """The data's channels lie in such blocks too."""
        return any(
            f is not None and i != weight and f.physical_shape[-1] == block and len(f.physical_shape) > len(f.shape)
            for i, f in enumerate(operands)
        )

    def _is_partner_last(self, operands: Formats, weight: int) -> bool:
        """Neighbours in the data are of one place and differ in the partner."""
        last = [f.index_map.flat_digits[-1:] for i, f in enumerate(operands) if f is not None and i != weight]
        extents = [digit.extent for digits in last for digit in digits]  # none of a tensor of one element
        return self.partner is not None and self.block.extents[self.partner] in extents

    def _packed(self, read: Access, block: int, data_block: int, *, is_last: bool) -> Format:
        """The lanes last, in ``block``; the partner's ``data_block`` before them.

        ``is_last``: of a window the partner is before the lanes as a whole, as it is last in the data: a kernel that
        has a window in its innermost loop meets elements again at other places of it, and runs out of registers.
        """
        shape = self.computation.buffers[read.buffer].shape
        plain = [self.block.variable(index) for index in read.indices]
        axis = plain.index(self.lane)
        inner: list[tuple[int, int]] = []
        partner = plain.index(self.partner) if self.partner in plain else None
        depth = None if partner is None else shape[partner]
        if data_block and partner is not None and isinstance(depth, int):
            inner.append((partner, data_block))
        if not inner and is_last and partner is not None and isinstance(depth, int) and self._is_window(read):
            inner.append((partner, depth))
        extent = shape[axis]
        if self.word and partner is not None and isinstance(extent, int):
            rows = [(partner, size // self.word) for _, size in inner if size > self.word]
            return in_blocks(shape, [*rows, (axis, block or extent), (partner, self.word)], front=axis)
        if block and isinstance(extent, int):
            return in_blocks(shape, [*inner, (axis, block)], front=axis if not inner else None)
        if inner and isinstance(extent, int):
            return in_blocks(shape, [*inner, (axis, extent)])
        return axis_last(shape, axis)

    def _is_window(self, read: Access) -> bool:
        """It has several elements for a place of the result, besides the partner."""
        others = {v for index in read.indices for v in _iters(index)} - {self.lane, self.partner}
        return any(not self.block.is_spatial(v) and self.block.extents[v] != 1 for v in others)


def _iters(index: object) -> tuple[int, ...]:
    return tuple(getattr(index, "iters", ()))


def _is_shared(block: Block, variable: int) -> bool:
    """Every operand and the result have this variable as an axis, and it is no batch that all loops could skip."""
    plain = [[block.variable(index) for index in read.indices] for read in block.reads]
    windows = any(isinstance(i, Affine) and len(i.iters) > 1 for read in block.reads for i in read.indices)
    return windows and block.extents[variable] != 1 and all(variable in axes for axes in plain)
