"""Flow: the formats that keep a computation's accesses in step when one of its buffers is laid out anew.

In: a :class:`Computation` and the format of a result (:func:`backward`), of an operand (:func:`forward`) or of several
(:func:`complete`). Out: :class:`Flow`, a format for every buffer. Any flow is sound; these are the natural ones.
With padding, axes that run along one variable are padded alike. Whether a block then runs *through* the padding or
under a condition (*masked*) follows from the formats, see :func:`eqsat_layout.tir.padding.plan_block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, UNDEF, Format, IndexMap, Padding
from eqsat_layout.tir.computation import Access, Block, Computation, IterKind, Role
from eqsat_layout.tir.fills import fills_for, fills_from, internal_fills
from eqsat_layout.tir.spreading import completed_padding, padded_view, spread_padding
from eqsat_layout.tir.transfer import Placing, RefusedError, covers, transfer


@dataclass(frozen=True)
class Flow:
    """A format for every operand, result and internal buffer, in the order of the :class:`Computation`."""

    operands: tuple[Format, ...]
    results: tuple[Format, ...]
    internal: tuple[Format, ...]


def backward(computation: Computation, result: int, fmt: Format) -> tuple[Flow, ...]:
    """The flows under which result number ``result`` comes in ``fmt``, best first; ``()`` if there is no natural one.

    With padding, first those whose operands' fills make the result's, if there are such, then those that ask nothing of
    the operands' padding and write the fill under a condition. At most three. Raises :class:`LayoutError` if ``fmt`` is
    not of the result's shape.
    """
    return _flows(computation, computation.results[result], fmt)


def forward(computation: Computation, operand: int, fmt: Format) -> tuple[Flow, ...]:
    """The flows that take operand number ``operand`` in ``fmt``, best first; ``()`` if there is no natural one.

    With padding, results are padded with what the function makes of it. At most three. Raises :class:`LayoutError` if
    ``fmt`` is not of the operand's shape.
    """
    return _flows(computation, computation.operands[operand], fmt)


def complete(computation: Computation, operands: Sequence[Format | None], results: Sequence[Format | None]) -> Flow:
    """The flow with these formats, and the most natural ones wherever ``None`` is given. Always answers.

    Row-major is taken where nothing better follows from the given ones. Operands and results get no padding unless it
    is given, internal buffers are padded as what is in step with them. Raises :class:`LayoutError` if a format is not
    of its buffer's shape.
    """
    given: dict[int, Format] = {}
    numbers = (*computation.operands, *computation.results)
    for number, fmt in zip(numbers, (*operands, *results), strict=True):
        if fmt is not None:
            _check_shape(computation, number, fmt)
            given[number] = fmt
    maps = {number: fmt.index_map for number, fmt in given.items() if not fmt.is_padded}
    _Spread(computation, maps, Placing.LAST, strict=False).run()
    if not any(fmt.is_padded for fmt in given.values()):
        return _flow(computation, _formats(computation, maps, {}) | given)
    return _flow(computation, _completed(computation, maps, given))


def _completed(
    computation: Computation, maps: Mapping[int, IndexMap], given: Mapping[int, Format]
) -> dict[int, Format]:
    """Formats where some are padded: public ones as ``maps`` has them, internal ones in step with their padding."""
    paddings = completed_padding(computation, given)
    view = padded_view(computation, paddings)
    inner = {n: fmt.index_map for n, fmt in given.items()}
    _Spread(view, inner, Placing.LAST, strict=False).run()
    formats = _formats(computation, maps, {}) | dict(given)
    padded = _formats(view, inner, paddings)
    formats |= {n: padded[n] for n in computation.internal if n in inner}
    fills = internal_fills(computation, formats)
    return {n: fmt.with_fill(fills[n]) if n in fills else fmt for n, fmt in formats.items()}


def _flows(computation: Computation, seed: int, fmt: Format) -> tuple[Flow, ...]:
    _check_shape(computation, seed, fmt)
    if computation.is_contraction or any(s != GLOBAL for s in (fmt.scope, *(b.scope for b in computation.buffers))):
        return ()
    try:
        paddings = spread_padding(computation, seed, fmt.padding)
    except RefusedError:
        return ()
    view = padded_view(computation, paddings)
    flows: dict[Flow, None] = {}
    for placing in Placing:
        maps = {seed: fmt.index_map}
        spread = _Spread(view, maps, placing, strict=True)
        try:
            spread.run()
        except RefusedError:
            continue
        formats = _formats(view, maps, paddings)
        flows.update(
            (_flow(computation, formats | filled), None) for filled in _fillings(computation, formats, seed, fmt)
        )
        if not spread.has_choice:
            break
    return tuple(flows)[:MOST_FLOWS]


MOST_FLOWS = 3


def _fillings(
    computation: Computation, formats: Mapping[int, Format], seed: int, fmt: Format
) -> Iterator[dict[int, Format]]:
    """The padded formats with their fills, best first."""
    if not fmt.is_padded:
        yield {}
        return
    chosen = fills_from if seed in computation.operands else fills_for
    for fills in chosen(computation, formats, seed, fmt.fill):
        yield {n: formats[n].with_fill(fill) for n, fill in fills.items()}


def _check_shape(computation: Computation, number: int, fmt: Format) -> None:
    buffer = computation.buffers[number]
    if fmt.shape != buffer.shape:
        raise LayoutError(f"buffer {buffer.name} has shape {buffer.shape}, its format is for {fmt.shape}: {fmt}")


def _formats(
    computation: Computation, maps: Mapping[int, IndexMap], paddings: Mapping[int, Padding]
) -> dict[int, Format]:
    """The format of every buffer, row-major where there is no map; padding is undef for now."""
    found: dict[int, Format] = {}
    for number, buffer in enumerate(computation.buffers):
        index_map = maps.get(number) or IndexMap.identity(buffer.shape)
        found[number] = Format.make(index_map, padding=paddings.get(number, ()), fill=UNDEF, scope=buffer.scope)
    return found


def _flow(computation: Computation, formats: Mapping[int, Format]) -> Flow:
    groups = (computation.operands, computation.results, computation.internal)
    return Flow(*(tuple(formats[n] for n in numbers) for numbers in groups))


@dataclass
class _Spread:
    """Spreads maps from known buffers through the blocks until nothing new is learnt.

    ``strict``: raises :class:`RefusedError` where buffers can't be kept in step, instead of leaving them.
    """

    computation: Computation
    maps: dict[int, IndexMap]
    placing: Placing
    strict: bool
    has_choice: bool = field(default=False)
    aligns: bool = field(init=False)

    def __post_init__(self) -> None:
        self.aligns = not any(axis.kind is IterKind.REDUCE for b in self.computation.blocks for axis in b.iters)

    def run(self) -> None:
        """Extends ``maps``: with what follows entirely as long as there is any, then with one choice, and again."""
        from_result = any(self.computation.buffers[n].role is Role.RESULT for n in self.maps)
        blocks = [b for b in self.computation.blocks if not b.is_contraction]
        orders = (blocks[::-1], blocks) if from_result else (blocks, blocks[::-1])
        self._settle(orders)
        while any(self._step(block, may_choose=True) for block in orders[0]):
            self._settle(orders)
        if self.strict:
            for block in blocks:
                self._check(block)

    def _settle(self, orders: Sequence[Sequence[Block]]) -> None:
        known = -1
        while known < len(self.maps) < len(self.computation.buffers):
            known = len(self.maps)
            for order in orders:
                for block in order:
                    self._step(block, may_choose=False)

    def _step(self, block: Block, may_choose: bool) -> bool:
        """Learns what the block tells, from what it writes or else from the read that runs along most of it."""
        written = next((w for w in block.writes if w.buffer in self.maps), None)
        if written is not None:
            targets = [t for t in (*block.writes, *block.reads) if t.buffer not in self.maps]
            return any([self._learn(block, written, target, may_choose) for target in targets])
        reads = [r for r in block.reads if r.buffer in self.maps]
        reads.sort(key=lambda r: -_moving_count(block, r))
        return any(self._learn(block, read, block.writes[0], may_choose) for read in reads)

    def _learn(self, block: Block, source: Access, target: Access, may_choose: bool) -> bool:
        follows = covers(block, source, target, self.computation.buffers[target.buffer].shape)
        if target.buffer in self.maps or not (follows or may_choose):
            return False
        try:
            self.maps[target.buffer] = self._transfer(block, source, target)
        except RefusedError:
            if self.strict:
                raise
            return False
        self.has_choice |= not follows
        return True

    def _transfer(self, block: Block, source: Access, target: Access) -> IndexMap:
        buffers = self.computation.buffers
        shape, index_map = buffers[source.buffer].shape, self.maps[source.buffer]
        return transfer(block, source, shape, index_map, target, buffers[target.buffer], self.placing, self.aligns)

    def _check(self, block: Block) -> None:
        """Refuses two demands on one operand."""
        written = next((w for w in block.writes if w.buffer in self.maps), None)
        for read in block.reads if written is not None else ():
            assert written is not None
            buffer = self.computation.buffers[read.buffer]
            known = self.maps.get(read.buffer)
            if known is None or buffer.role is Role.INTERNAL or not covers(block, written, read, buffer.shape):
                continue
            if _full_axes(known) != _full_axes(self._transfer(block, written, read)):
                raise RefusedError


def _moving_count(block: Block, read: Access) -> int:
    """How many of the block's spatial variables the read runs along."""
    return len({i for index in read.indices for i in index.iters if block.is_spatial(i) and block.extents[i] != 1})


def _full_axes(index_map: IndexMap) -> tuple[object, ...]:
    return tuple(digits for digits in index_map.dims if digits)
