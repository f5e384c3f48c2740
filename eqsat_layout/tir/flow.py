"""Flow: the formats that keep a computation's accesses in step when one of its buffers is laid out anew.

In: a :class:`Computation` and the format of a result (:func:`backward`), of an operand (:func:`forward`) or of several
(:func:`complete`). Out: :class:`Flow`, a format for every buffer. Any flow is sound; these are the natural ones.
Layouts are carried in flat memory; then every buffer is placed in each memory in which the target can read or write
it (:mod:`eqsat_layout.tir.placement`). With padding, axes that run along one variable are padded alike. Whether a block
then runs *through* the padding or under a condition (*masked*) follows from the formats, see
:func:`eqsat_layout.tir.padding.plan_block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, UNDEF, Format, Formats, IndexMap, Padding
from eqsat_layout.tir.computation import Computation, Role
from eqsat_layout.tir.dimensions import are_in_step
from eqsat_layout.tir.fills import fills_for, fills_from, internal_fills
from eqsat_layout.tir.map_spread import MapSpread
from eqsat_layout.tir.physical_axes import RefusedError
from eqsat_layout.tir.placement import FLAT, Placement, in_flat_memory, placed_formats, why_not_placed
from eqsat_layout.tir.spreading import completed_padding, padded_view, spread_padding
from eqsat_layout.tir.transfer import Placing

MOST_FLOWS = 3


@dataclass(frozen=True)
class Flow:
    """A format for every operand, result and internal buffer, in the order of the :class:`Computation`."""

    operands: tuple[Format, ...]
    results: tuple[Format, ...]
    internal: tuple[Format, ...]


def backward(
    computation: Computation,
    result: int,
    fmt: Format,
    *,
    contractions: bool = False,
    placement: Placement = FLAT,
    most: int = MOST_FLOWS,
) -> tuple[Flow, ...]:
    """The flows under which result number ``result`` comes in ``fmt``, best first; ``()`` if there is no natural one.

    With padding, first those whose operands' fills make the result's, if there are such, then those that ask nothing of
    the operands' padding and write the fill under a condition. At most so many, each with its buffers placed in every
    way that ``placement`` allows. Raises :class:`LayoutError` if ``fmt`` is not of the result's shape.
    """
    return _FlowSearch(computation, computation.results[result], fmt, contractions, placement, most).flows()


def forward(
    computation: Computation, operand: int, fmt: Format, *, contractions: bool = False, placement: Placement = FLAT
) -> tuple[Flow, ...]:
    """The flows that take operand number ``operand`` in ``fmt``, best first; ``()`` if there is no natural one.

    With padding, results are padded with what the function makes of it. At most three, each with its buffers placed in
    every way that ``placement`` allows. Raises :class:`LayoutError` if ``fmt`` is not of the operand's shape.
    """
    return _FlowSearch(computation, computation.operands[operand], fmt, contractions, placement).flows()


def why_not(
    computation: Computation,
    fmt: Format,
    *,
    result: int | None = None,
    operand: int | None = None,
    contractions: bool = False,
    placement: Placement = FLAT,
) -> str | None:
    """Why there is no flow for ``fmt``, :func:`backward` from a ``result`` or :func:`forward` from an ``operand``.

    In words that name the buffer, the axis and the cause; ``None`` if there is one. Raises :class:`LayoutError` if
    ``fmt`` is not of the buffer's shape.
    """
    numbers = computation.results if operand is None else computation.operands
    seed = numbers[operand if operand is not None else result or 0]
    search = _FlowSearch(computation, seed, fmt, contractions, placement)
    return None if search.flows() else search.reason


def complete(computation: Computation, operands: Formats, results: Formats) -> Flow:
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
    plain = {number: fmt.index_map for number, fmt in given.items() if not fmt.is_padded}
    maps = _natural_maps(computation, plain)
    if not any(fmt.is_padded for fmt in given.values()):
        return _flow(computation, _formats(computation, maps, {}) | given)
    return _flow(computation, _completed(computation, maps, given))


def _natural_maps(computation: Computation, given: Mapping[int, IndexMap]) -> dict[int, IndexMap]:
    """What follows from ``given``, with it.

    Axes that are cut get no border: an internal buffer that has one lies as the data do, in whole axes.
    """
    maps = dict(given)
    MapSpread(computation, maps, Placing.LAST, strict=False).run()
    left = [number for number in computation.internal if number not in maps]
    if left and given:
        whole = {number: index_map.with_whole_axes for number, index_map in given.items()}
        MapSpread(computation, whole, Placing.LAST, strict=False).run()
        maps |= {number: whole[number] for number in left if number in whole}
    return maps


def placed(
    computation: Computation, flow: Flow, given: Mapping[int, Format], placement: Placement = FLAT
) -> tuple[Flow, ...]:
    """``flow`` with its operands and results placed in every way, those of ``given`` (by buffer number) as they are."""
    if len(placement.memories) == 1:
        return (flow,)
    formats = dict(zip(computation.operands, flow.operands, strict=True))
    formats |= dict(zip(computation.results, flow.results, strict=True))
    formats |= dict(zip(computation.internal, flow.internal, strict=True))
    formats |= given
    return tuple(_flow(computation, found) for found in placed_formats(computation, formats, given, placement))


def _completed(
    computation: Computation, maps: Mapping[int, IndexMap], given: Mapping[int, Format]
) -> dict[int, Format]:
    """Formats where some are padded: public ones as ``maps`` has them, internal ones in step with their padding."""
    paddings = completed_padding(computation, given)
    view = padded_view(computation, paddings)
    inner = _natural_maps(view, {n: fmt.index_map for n, fmt in given.items()})
    formats = _formats(computation, maps, {}) | dict(given)
    padded = _formats(view, inner, paddings)
    formats |= {n: padded[n] for n in computation.internal if n in inner}
    fills = internal_fills(computation, formats)
    return {n: fmt.with_fill(fills[n]) if n in fills else fmt for n, fmt in formats.items()}


class _FlowSearch:
    """All natural flows from one buffer's format. ``reason`` is the first refusal, in words."""

    def __init__(
        self,
        computation: Computation,
        seed: int,
        fmt: Format,
        contractions: bool,
        placement: Placement,
        most: int = MOST_FLOWS,
    ) -> None:
        _check_shape(computation, seed, fmt)
        self.computation = computation
        self.seed = seed
        self.placed, self.placement = fmt, placement
        self.fmt = in_flat_memory(fmt)
        self.contractions = contractions
        self.most = most
        self.reason: str | None = None

    def flows(self) -> tuple[Flow, ...]:
        """The best first, in every placement."""
        return tuple(
            p for f in self._flat() for p in placed(self.computation, f, {self.seed: self.placed}, self.placement)
        )

    def _flat(self) -> tuple[Flow, ...]:
        """The flows in flat memory."""
        if not self._is_open():
            return ()
        if not self.fmt.is_padded and is_in_step(self.computation):
            other, buffers = Format.make(self.fmt.index_map), range(len(self.computation.buffers))
            return (_flow(self.computation, {n: self.fmt if n == self.seed else other for n in buffers}),)
        has_pairs = any(b.is_contraction and b.pairs for b in self.computation.blocks)
        flows: dict[Flow, None] = {}
        placings = [Placing.NEAR, Placing.LAST] if self.computation.is_contraction else list(Placing)
        for placing in placings:
            may_differ = False
            for pairs in [True, False] if has_pairs else [False]:
                spread = self._found(placing, pairs, flows)
                if len(flows) >= self.most:
                    return tuple(flows)[: self.most]
                may_differ |= spread is not None and spread.has_choice and spread.is_placed
                if spread is not None and not spread.is_paired and not self.fmt.is_padded:
                    break
            if not may_differ:
                break
        return tuple(flows)

    def _is_open(self) -> bool:
        self.reason = why_not_placed(self.computation, self.seed, self.placed, self.placement)
        if self.reason is None and self.computation.is_contraction and not self.contractions:
            self.reason = "a contraction takes no layouts but those of its candidates"
        return self.reason is None

    def _found(self, placing: Placing, pairs: bool, flows: dict[Flow, None]) -> MapSpread | None:
        """Adds what is found under one way of placing; how it was found, or None where padding is refused."""
        maps, spread = {self.seed: self.fmt.index_map}, None
        try:
            is_padded, view = self.fmt.is_padded, self.computation
            paddings, view = _padded(view, self.seed, self.fmt.padding, pairs) if is_padded else ({}, view)
            spread = MapSpread(view, maps, placing, strict=True, contractions=self.contractions, pairs=pairs)
            spread.run()
        except RefusedError as refusal:
            name = self.computation.buffers[refusal.buffer].name
            self.reason = self.reason or f"{name}: {refusal.reason}"
            return spread
        formats = _formats(view, maps, paddings) | {self.seed: self.fmt}  # padding may come back to other axes of it
        for filled in _fillings(self.computation, formats, self.seed, self.fmt):
            flows[_flow(self.computation, formats | filled)] = None
        return spread


def is_in_step(computation: Computation) -> bool:
    """All buffers are of one shape, and accessed at the same place: any map of one is that of all."""
    found: bool | None = computation.derived.get("in step")
    if found is None:
        found = computation.derived["in step"] = _are_in_step(computation)
    return found


def in_step_with_result(computation: Computation) -> frozenset[int]:
    """The places, among operands and results, of buffers that are accessed where the only result is, and of that: the
    flows from an unpadded format of one of them are those from this format of any. Empty where it takes more
    than one block."""
    found: frozenset[int] | None = computation.derived.get("in step with result")
    if found is None:
        found = computation.derived["in step with result"] = frozenset(_in_step_with_result(computation))
    return found


def _in_step_with_result(computation: Computation) -> Iterator[int]:
    if len(computation.blocks) != 1 or computation.internal or len(computation.blocks[0].writes) != 1:
        return
    (block,) = computation.blocks
    (write,) = block.writes
    shape = computation.buffers[write.buffer].shape
    for place, number in enumerate((*computation.operands, *computation.results)):
        accesses = [access for access in (write, *block.reads) if access.buffer == number]
        is_one = bool(accesses) and computation.buffers[number].shape == shape
        if is_one and all(are_in_step(block, write, access) for access in accesses):
            yield place


def _are_in_step(computation: Computation) -> bool:
    if len(computation.blocks) != 1 or computation.internal:
        return False
    (block,) = computation.blocks
    accesses = (*block.writes, *block.reads)
    is_all = {access.buffer for access in accesses} == set(range(len(computation.buffers)))
    has_one_shape = len({buffer.shape for buffer in computation.buffers}) == 1
    return is_all and has_one_shape and all(are_in_step(block, accesses[0], access) for access in accesses)


def _fillings(
    computation: Computation, formats: Mapping[int, Format], seed: int, fmt: Format
) -> Iterator[dict[int, Format]]:
    """The padded formats with their fills, best first."""
    if not fmt.is_padded:
        yield {}
        return
    question = ("fills", seed, fmt.fill, *(formats[n].padding for n in range(len(computation.buffers))))
    if question not in computation.derived:
        chosen = fills_from if seed in computation.operands else fills_for
        computation.derived[question] = chosen(computation, formats, seed, fmt.fill)
    for fills in computation.derived[question]:
        yield {n: formats[n].with_fill(fill) for n, fill in fills.items()}


def _padded(
    computation: Computation, seed: int, padding: Padding, pairs: bool
) -> tuple[dict[int, Padding], Computation]:
    """The padding of every buffer where buffer ``seed`` has this one, and the computation over the padded shapes."""
    question = ("padded", seed, padding, pairs)
    if question not in computation.derived:
        paddings = spread_padding(computation, seed, padding, pairs)
        computation.derived[question] = paddings, padded_view(computation, paddings)
    found: tuple[dict[int, Padding], Computation] = computation.derived[question]
    return found


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
        scope = buffer.scope if buffer.role is Role.INTERNAL else GLOBAL
        found[number] = Format.make(index_map, padding=paddings.get(number, ()), fill=UNDEF, scope=scope)
    return found


def _flow(computation: Computation, formats: Mapping[int, Format]) -> Flow:
    groups = (computation.operands, computation.results, computation.internal)
    return Flow(*(tuple(formats[n] for n in numbers) for numbers in groups))
