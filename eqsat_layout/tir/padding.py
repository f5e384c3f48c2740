"""How a block runs where the formats of its buffers have padding.

In: a block and the format of every buffer. Out: a :class:`BlockPlan`: how far each iteration variable runs beyond its
extent, and beyond which of them the block stores the fill instead of what it computes. Proofs are by evaluation of the
block's scalar expressions on the fills (:mod:`eqsat_layout.tir.scalars`). In a reduction, real data counts as finite.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Fill, Format, exact_fill
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation, Index, IterKind, Store
from eqsat_layout.tir.scalar_values import ANYTHING, BOOL, FINITE, Interval, Kept, Scalar, UnsafeError, as_held
from eqsat_layout.tir.scalars import Evaluator

PadWidths = tuple[int, int]
"""How far an axis or a variable goes on before 0 and behind its extent."""

NONE: PadWidths = (0, 0)


@dataclass(frozen=True)
class BlockPlan:
    """``borders[v]``: how far variable ``v`` runs beyond its extent. ``masked``: variables beyond whose extent the
    block stores the fill; beyond the others it computes as ever, on the padding of what it reads (*through*).

    ``exact`` are the reduced variables that read a padded axis and yet run over their own extent only.
    """

    borders: tuple[PadWidths, ...]
    masked: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()


def plan_block(computation: Computation, block: Block, formats: Sequence[Format]) -> BlockPlan:
    """The plan of ``block`` with the buffers in ``formats``; the same for the same arguments, always.

    Raises :class:`LayoutError` where a buffer has padding that the block can't write, or a fill that it can't hold.
    """
    if not any(formats[a.buffer].is_padded for a in _accesses(block)):
        return BlockPlan((NONE,) * len(block.iters))
    written = _written_borders(computation, block, formats)
    return _Planner(computation, block, formats).plan(written)


def produced_fills(computation: Computation, block: Block, formats: Sequence[Format]) -> tuple[Fill, ...]:
    """Per store, what a block that runs *through* leaves in the padding of its buffer; the fills there are not read."""
    written = _written_borders(computation, block, formats)
    planner = _Planner(computation, block, formats)
    borders = planner.with_reductions(written)[0]
    found: list[set[Scalar]] = [set() for _ in block.stores]
    try:
        for outside in _corners(written):
            for values, scalar in zip(found, planner.stored(borders, outside), strict=True):
                values.add(exact_fill(scalar))
    except UnsafeError:
        return tuple(UNDEF if formats[s.access.buffer].is_padded else None for s in block.stores)
    return tuple(
        None if not formats[s.access.buffer].is_padded else _as_fill(values)
        for s, values in zip(block.stores, found, strict=True)
    )


def over_borders(block: Block, borders: Sequence[PadWidths]) -> Block:
    """The block as it runs over ``borders``; what was an access at ``v`` is one at the new variable."""
    if not any(any(b) for b in borders):
        return block
    iters = tuple(
        replace(axis, extent=axis.extent + sum(border)) if any(border) and isinstance(axis.extent, int) else axis
        for axis, border in zip(block.iters, borders, strict=True)
    )

    def moved(access: Access) -> Access:
        return Access(access.buffer, tuple(widened(i) for i in access.indices))

    def widened(index: Index) -> Index:
        number = plain_variable(block, index)
        if number is None or not any(borders[number]):
            return index
        assert isinstance(index, Affine)
        return Affine((index.terms[0]._replace(extent=iters[number].extent),))

    stores = tuple(Store(moved(s.access), s.value) for s in block.stores)
    return replace(block, iters=iters, stores=stores, reads=tuple(dict.fromkeys(moved(r) for r in block.reads)))


def plain_variable(block: Block, index: Index) -> int | None:
    """The variable that the index is, as it stands."""
    if not isinstance(index, Affine) or index.constant:
        return None
    return index.shift_of(block.extents)


def linked_variable(computation: Computation, block: Block, access: Access, dim: int) -> int | None:
    """The variable that dimension ``dim`` of the access runs along from its start to its end."""
    number = plain_variable(block, access.indices[dim])
    whole = number is not None and block.extents[number] == computation.buffers[access.buffer].shape[dim]
    return number if whole else None


def _accesses(block: Block) -> Iterator[Access]:
    yield from block.writes
    yield from block.reads


def _written_borders(computation: Computation, block: Block, formats: Sequence[Format]) -> tuple[PadWidths, ...]:
    """How far the variables must run for the padding of all that is written to be written."""
    borders: dict[int, PadWidths] = {}
    for access in block.writes:
        name, fmt = computation.buffers[access.buffer].name, formats[access.buffer]
        if fmt.is_padded and fmt.fill is not UNDEF and _stored_fill(computation, fmt, access.buffer) is None:
            raise LayoutError(f"{name} is {computation.buffers[access.buffer].dtype}: it can't hold {fmt.fill}: {fmt}")
        for dim, border in enumerate(fmt.padding):
            number = linked_variable(computation, block, access, dim)
            if number is None and any(border):
                raise LayoutError(f"axis {dim} of {name} is not written along one variable, so it can't be padded")
            if number is not None and borders.setdefault(number, border) != border:
                raise LayoutError(f"{name} is written together with a buffer that is padded otherwise: {fmt}")
    return tuple(borders.get(i, NONE) for i in range(len(block.iters)))


def _stored_fill(computation: Computation, fmt: Format, buffer: int) -> float | None:
    return as_held(fmt.fill, computation.buffers[buffer].dtype) if isinstance(fmt.fill, int | float) else None


def _as_fill(values: set[Scalar]) -> Fill:
    (value, *rest) = values or {ANYTHING}
    return exact_fill(float(value)) if not rest and isinstance(value, int | float) else UNDEF


Outside = Mapping[int, int]
"""The variables beyond their extents: -1 before 0, 1 behind the extent."""


def _corners(borders: Sequence[PadWidths]) -> Iterator[Outside]:
    """All combinations of variables being before, within or behind their extents, but for all within."""
    numbers = [i for i, border in enumerate(borders) if any(border)]
    sides = [[0, *([-1] if borders[i][0] else []), *([1] if borders[i][1] else [])] for i in numbers]
    for corner in itertools.product(*sides):
        if any(corner):
            yield {i: side for i, side in zip(numbers, corner, strict=True) if side}


class _Planner:
    """Evaluates one block under one choice of formats."""

    def __init__(self, computation: Computation, block: Block, formats: Sequence[Format]) -> None:
        self.computation = computation
        self.block = block
        self.formats = formats
        self.reduces = any(axis.kind is IterKind.REDUCE for axis in block.iters)
        self.own = {s.access.buffer: s for s in block.stores}

    def plan(self, written: tuple[PadWidths, ...]) -> BlockPlan:
        borders, own_extent = self.with_reductions(written)
        padded = [i for i, border in enumerate(written) if any(border)]
        alone = {i: [c for c in _corners(written) if set(c) == {i}] for i in padded}
        masked = [i for i in padded if self._is_dropped(i) or not all(self._is_through(borders, c) for c in alone[i])]
        rest = [c for c in _corners(written) if len(c) > 1 and not set(c) & set(masked)]
        if not all(self._is_through(borders, c) for c in rest):
            masked = padded
        return BlockPlan(borders, tuple(masked), own_extent)

    def _is_dropped(self, number: int) -> bool:
        """A variable of extent 1 may be missing from an index that was simplified."""
        opaque = any(not isinstance(i, Affine) for access in _accesses(self.block) for i in access.indices)
        return opaque and self.block.extents[number] == 1

    def with_reductions(self, written: tuple[PadWidths, ...]) -> tuple[tuple[PadWidths, ...], tuple[int, ...]]:
        """The borders with those of reduced variables that read padding which changes nothing; and the other ones."""
        wishes = {i: self._wish(i) for i in range(len(self.block.iters)) if not self.block.is_spatial(i)}
        wishes = {i: border for i, border in wishes.items() if any(border)}
        together = self._with(written, wishes)
        if self._is_neutral(together):
            return together, ()
        borders, own_extent = written, []
        for number, border in wishes.items():
            tried = self._with(borders, {number: border})
            if self._is_neutral(tried):
                borders = tried
            else:
                own_extent.append(number)
        return borders, tuple(own_extent)

    def stored(self, borders: Sequence[PadWidths], outside: Outside) -> list[Scalar]:
        """Per store, what the buffer holds in the end where spatial variables are ``outside``; or UnsafeError."""
        if not self.reduces:
            return [self._value(borders, outside, {}, s) for s in self.block.stores]
        starts = self._starts(borders, outside)
        corners = [{}, *_corners(self._reduced(borders))]
        kept = {b: Kept(b, start) for b, start in starts.items()}
        if all(self._steps(borders, {**outside, **c}, kept) == list(kept.values()) for c in corners):
            return list(starts.values())
        # one more chance: a first step to a number at which it then stays
        first = [self._steps(borders, {**outside, **c}, starts) for c in corners]
        after = dict(zip(self.own, first[0], strict=True))
        settled = [self._steps(borders, {**outside, **c}, after) for c in corners]
        wanted = [*map(exact_fill, first[0])]
        is_settled = all([*map(exact_fill, step)] == wanted for step in (*first, *settled))
        return first[0] if is_settled else [ANYTHING] * len(first[0])

    def _wish(self, number: int) -> PadWidths:
        """The greatest border among the padded axes that the reduced variable runs along."""
        if self.block.extents[number] == 1:
            return NONE
        borders = [
            self.formats[read.buffer].padding[dim]
            for read in self.block.reads
            for dim in range(len(read.indices))
            if linked_variable(self.computation, self.block, read, dim) == number
        ]
        return max(borders, key=sum, default=NONE)

    @staticmethod
    def _with(borders: tuple[PadWidths, ...], more: Mapping[int, PadWidths]) -> tuple[PadWidths, ...]:
        return tuple(more.get(i, border) for i, border in enumerate(borders))

    def _reduced(self, borders: Sequence[PadWidths]) -> tuple[PadWidths, ...]:
        return tuple(NONE if self.block.is_spatial(i) else border for i, border in enumerate(borders))

    def _is_neutral(self, borders: Sequence[PadWidths]) -> bool:
        """Steps beyond the extents of the reduced variables keep what is stored."""
        try:
            starts = self._starts(borders, {})
            kept = {b: Kept(b, start) for b, start in starts.items()}
            corners = _corners(self._reduced(borders))
            return all(self._steps(borders, c, kept) == list(kept.values()) for c in corners)
        except UnsafeError:
            return False

    def _is_through(self, borders: Sequence[PadWidths], outside: Outside) -> bool:
        try:
            found = self.stored(borders, outside)
        except UnsafeError:
            return False
        fills = [self.formats[b].fill for b in self.own]
        wanted = [_stored_fill(self.computation, self.formats[b], b) for b in self.own]
        return all(
            f is UNDEF or (w is not None and exact_fill(w) == exact_fill(v))
            for f, w, v in zip(fills, wanted, found, strict=True)
        )

    def _starts(self, borders: Sequence[PadWidths], outside: Outside) -> dict[int, Scalar]:
        """What reductions start from: what the block stores first, or what an earlier block has left."""
        inits = {s.access.buffer: s for s in self.block.inits}
        if inits:
            return {b: self._value(borders, outside, {}, inits[b]) for b in self.own}
        return {b: self.padding(b) if outside else ANYTHING for b in self.own}

    def _steps(self, borders: Sequence[PadWidths], outside: Outside, kept: Mapping[int, Scalar]) -> list[Scalar]:
        return [self._value(borders, outside, kept, s) for s in self.block.stores]

    def _value(
        self, borders: Sequence[PadWidths], outside: Outside, kept: Mapping[int, Scalar], store: Store
    ) -> Scalar:
        point = _Point(self, borders, outside, kept)
        evaluator = Evaluator(point.load, point.spans, frozenset(outside))
        value = evaluator.value(store.value)
        # a number that the buffer's dtype can't hold is no fill
        dtype = self.computation.buffers[store.access.buffer].dtype
        is_number = isinstance(value, int | float)
        return ANYTHING if is_number and as_held(value, dtype) != value else value  # type: ignore[arg-type]

    def real(self, buffer: int) -> Scalar:
        """What is known of the data itself."""
        dtype = self.computation.buffers[buffer].dtype
        if dtype == "bool":
            return BOOL
        is_finite = self.block.is_contraction and not self.computation.any_numbers
        return FINITE if "int" in dtype or is_finite else ANYTHING

    def padding(self, buffer: int) -> Scalar:
        number = _stored_fill(self.computation, self.formats[buffer], buffer)
        return ANYTHING if number is None else number


class _Point:
    """The points at which some variables are outside of their extents and all others within."""

    def __init__(
        self, planner: _Planner, borders: Sequence[PadWidths], outside: Outside, kept: Mapping[int, Scalar]
    ) -> None:
        self.planner = planner
        self.block = planner.block
        self.kept = kept
        self.outside = frozenset(outside)
        self.spans: list[Scalar] = []
        for number, (extent, border) in enumerate(zip(self.block.extents, borders, strict=True)):
            side = outside.get(number, 0)
            last = math.inf if isinstance(extent, str) else extent - 1
            low, high = (0, last) if not side else (-border[0], -1) if side < 0 else (last + 1, last + border[1])
            self.spans.append(int(low) if low == high else Interval(low, high))

    def load(self, access: Access, guarded: bool) -> Scalar:
        """What a load gives; UnsafeError where it may be out of bounds."""
        planner = self.planner
        own = planner.own.get(access.buffer)
        if own is not None and access.buffer in self.kept:
            return self.kept[access.buffer]
        fmt = planner.formats[access.buffer]
        is_padding, is_mixed = False, False
        for index, extent, border in zip(access.indices, fmt.shape, fmt.padding, strict=True):
            if not self.outside.intersection(index.iters):
                # as in the original, where a condition may keep it in bounds: then by the same one
                if guarded and not self._is_within(index, extent, border):
                    raise UnsafeError
                continue
            low, high = self._range(index)
            if isinstance(extent, str) or low < -border[0] or high >= extent + border[1]:
                raise UnsafeError
            is_padding |= high < 0 or low >= extent
            is_mixed |= low < 0 or high >= extent
        if is_padding:
            return planner.padding(access.buffer)
        return ANYTHING if is_mixed else planner.real(access.buffer)

    def _is_within(self, index: Index, extent: int | str, border: PadWidths) -> bool:
        if not isinstance(index, Affine):
            return False
        if isinstance(extent, str):
            return linked_symbolic(self.block, index, extent)
        low, high = self._range(index)
        return -border[0] <= low and high < extent + border[1]

    def _range(self, index: Index) -> tuple[float, float]:
        """Least and greatest value of an index."""
        if not isinstance(index, Affine):
            raise UnsafeError
        low = high = float(index.constant)
        for weight, number, stride, extent in index.terms:
            if number in self.outside:
                if stride != 1 or extent != self.block.extents[number]:
                    raise UnsafeError  # a part of a variable that is beyond its extent
                span = self.spans[number]
                bounds = (span.low, span.high) if isinstance(span, Interval) else (float(span), float(span))  # type: ignore[arg-type]
            else:
                bounds = (0.0, math.inf if isinstance(extent, str) else extent - 1.0)
            low += min(weight * bounds[0], weight * bounds[1])
            high += max(weight * bounds[0], weight * bounds[1])
        return low, high


def linked_symbolic(block: Block, index: Affine, extent: str) -> bool:
    """The index is a variable of just this symbolic extent."""
    number = plain_variable(block, index)
    return number is not None and block.extents[number] == extent
