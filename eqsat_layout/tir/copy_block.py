"""Reads a block that only copies: as an index map with a crop and a pad, if it is one.

In: a block of a :class:`Computation`. Out: a :class:`LayoutRewrite` from the one buffer that it reads to the one that
it writes, or ``None``. Indices are read exactly as digits; which points are padding is found by evaluating the block's
condition at every point of the iteration variables in it, and must be a box.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Extent, Fill, IndexMap, extent_product
from eqsat_layout.tir.affine import Affine, Term, digit_of, summed
from eqsat_layout.tir.computation import Block, Computation, Index, Opaque, Store, Value, access_map
from eqsat_layout.tir.index_values import COMPARISONS, affine_of, combined, divided_sums, values_at
from eqsat_layout.tir.layout_rewrite import LayoutRewrite

MAX_POINTS = 1 << 22
"""Conditions over more points than this are not evaluated."""


def read_copy(computation: Computation, block: Block) -> tuple[int, int, LayoutRewrite] | None:
    """``(source, target, rewrite)``, buffers by number, of a block that copies one buffer to all of another."""
    if len(block.stores) != 1 or block.inits or not all(map(block.is_spatial, range(len(block.iters)))):
        return None
    (store,) = block.stores
    guard = _guard(store.value)
    if guard is None or guard.load.access is None or guard.load.access.buffer == store.access.buffer:
        return None
    try:
        rewrite = _CopyReader(computation, block, store, guard).rewrite()
    except (_NotACopyError, LayoutError):
        return None
    return guard.load.access.buffer, store.access.buffer, rewrite


class _NotACopyError(Exception):
    """The block is no layout rewrite; never leaves this room."""


# ---- what is loaded, and when ----


@dataclass(frozen=True)
class _Guard:
    """``load`` where all of ``conditions`` hold as they are said to, ``fill`` elsewhere."""

    load: Value
    conditions: tuple[tuple[Value, bool], ...] = ()
    fill: Fill = None


def _guard(value: Value) -> _Guard | None:
    if value.op == "load":
        return _Guard(value)
    if value.op not in ("prim.if_then_else", "Select"):
        return None
    condition, yes, no = value.args
    for inside, outside, wanted in ((yes, no, True), (no, yes, False)):
        fill, inner = _number(outside), _guard(inside)
        if fill is not None and inner is not None and inner.fill in (None, fill):
            return _Guard(inner.load, ((condition, wanted), *inner.conditions), fill)
    return None


def _number(value: Value) -> float | int | None:
    if value.op != "const":
        return None
    return float.fromhex(value.literal) if isinstance(value.literal, str) else value.literal


# ---- the middle: the logical tensor between unpacking and packing ----


@dataclass(frozen=True)
class _Number:
    """A number written by digits of iteration variables that stands for ``number + shift`` of ``room`` elements."""

    digits: tuple[Digit, ...]
    shift: int
    room: int

    @property
    def extent(self) -> int:
        return _size(self.digits)


@dataclass(frozen=True)
class _CopyAxis:
    """An axis of the middle: digits of the source's axes, and the number that runs along it, ``shift`` elements in."""

    source: tuple[Digit, ...]
    room: Extent
    digits: tuple[Digit, ...]
    shift: int
    place: int

    @property
    def order(self) -> tuple[int, int]:
        stride = self.source[0].stride if self.source else 0
        return (self.source[0].axis if self.source else self.place, -stride)


@dataclass
class _CopyReader:
    computation: Computation
    block: Block
    store: Store
    guard: _Guard
    shape: tuple[Extent, ...] = ()
    numbers: list[_Number] = field(default_factory=list)

    def rewrite(self) -> LayoutRewrite:
        written = access_map(self.computation, self.block, self.store.access)
        access = self.guard.load.access
        if written is None or access is None:
            raise _NotACopyError
        source, target = self.computation.buffers[access.buffer], self.computation.buffers[self.store.access.buffer]
        if source.dtype != target.dtype:
            raise _NotACopyError
        self.shape = source.shape
        for numbers, merges in itertools.product(self._choices(access.indices), (True, False)):
            self.numbers = numbers
            try:
                indices = [self._in_numbers(index) for index in access.indices]
                return self._assembled(self._axes(indices, merges), written)
            except (_NotACopyError, LayoutError):
                continue
        raise _NotACopyError

    def _assembled(self, axes: list[_CopyAxis], written: IndexMap) -> LayoutRewrite:
        used = {d.axis for axis in axes for d in axis.digits}
        for number, extent in enumerate(self.block.extents):
            if number not in used and extent != 1:  # a unit axis of the source that is padded all around
                digits = (Digit(number, 1, extent),)
                unit = next((i for i, a in enumerate(axes) if a.room == 1 and not a.digits), len(axes))
                axes[unit : unit + 1] = [_CopyAxis(axes[unit].source if unit < len(axes) else (), 1, digits, 0, unit)]
        axes.sort(key=lambda a: a.order)
        ranges = [self._range(axis) for axis in axes]
        self._check_box(axes, ranges)
        crop, pad = [], []
        for axis, (low, high) in zip(axes, ranges, strict=True):
            is_whole = isinstance(axis.room, str)
            first = low + axis.shift if axis.room != 1 else 0
            crop.append((0, 0) if is_whole else (first, _int(axis.room) - first - (high - low)))
            pad.append((0, 0) if is_whole else (low, _size(axis.digits) - high))
        unpack = IndexMap.make(self.shape, [axis.source for axis in axes])
        inverse = IndexMap.make(self.block.extents, [axis.digits for axis in axes]).inverse()
        pack = None if inverse is None else written.after(inverse)
        if pack is None:
            raise _NotACopyError
        pack = IndexMap.make(pack.shape, pack.dims)
        return LayoutRewrite.make(unpack, crop=crop, pad=pad, fill=self.guard.fill, pack=pack)

    # ---- indices that are digits of a number that is cut short: (c // 4, c % 4) with c < 30 ----

    def _choices(self, indices: Sequence[Index]) -> Iterator[list[_Number]]:
        """What may be numbers: what is divided in the indices, shifted as it is there, then what is compared too."""
        divided: dict[tuple[Digit, ...], dict[int, None]] = {}
        for index in indices:
            for value in divided_sums(index.value, self.block.extents) if isinstance(index, Opaque) else ():
                digits, shift = self._completed(value)
                divided.setdefault(digits, {})[shift] = None
        compared: dict[tuple[Digit, ...], dict[int, None]] = {}
        for condition, _ in self.guard.conditions:
            for side in (side for v in condition.walk() if v.op in COMPARISONS for side in v.args):
                bounded = affine_of(side, self.block.extents)
                digits = () if bounded is None else Affine(bounded.terms).digits() or ()
                if len(digits) > 1 and digits not in divided:
                    compared[digits] = {0: None}
        for found in (divided, divided | compared) if compared else (divided,):
            for shifts in itertools.product(*found.values()):
                yield [self._numbered(d, shift, indices) for d, shift in zip(found, shifts, strict=True)]

    def _numbered(self, digits: tuple[Digit, ...], shift: int, indices: Sequence[Index]) -> _Number:
        """Its room is what the source's axes that it writes leave to it."""
        iters = {d.axis for d in digits}
        axes = [i for i, index in enumerate(indices) if iters & set(index.iters)]
        others = {i for axis in axes for i in indices[axis].iters} - iters
        covered = math.prod(_int(self.shape[axis]) for axis in axes)
        rest = math.prod(_int(self.block.extents[i]) for i in others)
        if covered % rest:
            raise _NotACopyError
        return _Number(digits, shift, covered // rest)

    def _completed(self, value: Affine) -> tuple[tuple[Digit, ...], int]:
        """The whole number that ``value`` is the top of, and the shift against it."""
        digits = Affine(value.terms).digits()
        if not digits:
            raise _NotACopyError
        last = digits[-1]
        if last.stride == 1:
            return digits, value.constant
        joined = Digit(last.axis, 1, _int(last.extent) * last.stride)
        return (*digits[:-1], joined), value.constant * last.stride

    def _in_numbers(self, index: Index) -> Affine:
        """The index as a sum over iteration variables and, numbered behind them, the numbers."""
        value = self._evaluated(index.value) if isinstance(index, Opaque) else self._renamed(index)
        if value is None:
            raise _NotACopyError
        return value

    def _evaluated(self, value: Value) -> Affine | None:
        plain = affine_of(value, self.block.extents)
        if plain is not None and (renamed := self._renamed(plain)) is not None:
            return renamed
        if len(value.args) != 2:
            return None
        return combined(value.op, self._evaluated(value.args[0]), self._evaluated(value.args[1]))

    def _renamed(self, value: Affine) -> Affine | None:
        """``value`` with digits of a number instead of the iteration variables that write it."""
        for k, number in enumerate(self.numbers):
            iters = {d.axis for d in number.digits}
            own = [t for t in value.terms if t.iter in iters]
            if not own:
                continue
            part = self._slice(own, number, len(self.block.iters) + k)
            if part is None:
                return None
            rest = [t for t in value.terms if t.iter not in iters]
            value = summed([*rest, *part.terms], value.constant + part.constant)
        return value

    def _slice(self, own: Sequence[Term], number: _Number, name: int) -> Affine | None:
        """Terms that are a slice of the number, times a weight."""
        weight = min(t.weight for t in own)
        digits = Affine(tuple(t._replace(weight=t.weight // weight) for t in own)).digits()
        if weight < 1 or digits is None or any(t.weight % weight for t in own):
            return None
        extent, whole = _size(digits), summed(_terms(number.digits), 0)
        for place in range(1, number.extent // extent + 1):
            if number.extent % place == 0:
                part = digit_of(whole, place, extent, number.extent)
                if part is not None and part.digits() == digits:
                    return self._part(number, name, weight, place, extent)
        return None

    def _part(self, number: _Number, name: int, weight: int, place: int, extent: int) -> Affine | None:
        if place * extent == number.extent:  # the top: what is shifted may reach above it
            if number.shift % place or number.room % place:
                return None
            return Affine((Term(weight, name, place, number.room // place),), -weight * (number.shift // place))
        if number.shift % (place * extent) or number.room % (place * extent):
            return None
        return Affine((Term(weight, name, place, extent),))

    # ---- the axes of the middle ----

    def _axes(self, indices: Sequence[Affine], merges: bool) -> list[_CopyAxis]:
        first = len(self.block.iters)
        exact = [axis for axis, index in enumerate(indices) if any(i >= first for i in index.iters)]
        axes = self._exact_axes(exact, indices) if exact else []
        for axis, index in enumerate(indices):
            if axis not in exact:
                axes.extend(self._segments(axis, index, merges))
        return axes

    def _exact_axes(self, exact: Sequence[int], indices: Sequence[Affine]) -> list[_CopyAxis]:
        """Source axes that numbers and other variables write digit by digit, all elements of them."""
        first = len(self.block.iters)
        used = sorted({i for axis in exact for i in indices[axis].iters})
        extents = [self.block.extents[i] if i < first else self.numbers[i - first].room for i in used]
        places = {i: p for p, i in enumerate(used)}
        rows: list[list[Digit]] = []
        for axis in exact:
            digits = indices[axis].digits()
            if digits is None or _size(digits) != self.shape[axis]:
                raise _NotACopyError
            rows.append([d._replace(axis=places[d.axis]) for d in digits])
        inverse = IndexMap.make(extents, rows).inverse()
        if inverse is None:
            raise _NotACopyError
        axes: list[_CopyAxis] = []
        for i, row, extent in zip(used, inverse.dims, extents, strict=True):
            if extent == 1:
                continue
            source = tuple(d._replace(axis=exact[d.axis]) for d in row)
            number = self.numbers[i - first] if i >= first else _Number((Digit(i, 1, extent),), 0, _int(extent))
            axes.append(_CopyAxis(source, extent, number.digits, number.shift, 0))
        return axes

    def _segments(self, axis: int, index: Affine, merges: bool) -> list[_CopyAxis]:
        """A source axis cut into the digits that numbers of iteration variables run along."""
        size = self.shape[axis]
        digits = index.digits()
        is_whole = digits is not None and extent_product(d.extent for d in digits) == size
        if digits is not None and is_whole and (merges or isinstance(size, str)):
            own = tuple(d for d in digits if d.extent != 1)
            return [_CopyAxis((Digit(axis, 1, size),), size, own, 0, axis)]
        terms = [t for t in index.terms if t.extent != 1]
        found: list[_CopyAxis] = []
        constant, room_above = index.constant, _int(size)
        for group in _groups(terms, merges) or [[]]:
            weight = group[-1].weight if group else 1
            if weight < 1 or room_above % weight:
                raise _NotACopyError
            own = tuple(Digit(t.iter, t.stride, t.extent) for t in group)
            found.append(_CopyAxis((Digit(axis, weight, room_above // weight),), room_above // weight, own, 0, axis))
            room_above = weight
        if room_above != 1:  # the lowest digits stand still
            found.append(_CopyAxis((Digit(axis, 1, room_above),), room_above, (), 0, axis))
        return self._shifted(found, constant)

    def _shifted(self, found: list[_CopyAxis], constant: int) -> list[_CopyAxis]:
        """Each axis with its share of the constant, so that what is read lies within it."""
        shifted: list[_CopyAxis] = []
        for row in reversed(found):
            (digit,) = row.source
            shift = constant // digit.stride
            if row is not found[0]:
                room = _int(row.room)
                shift %= room
                shift -= room if self._range(row)[0] + shift >= room else 0
            constant -= shift * digit.stride
            shifted.append(replace(row, shift=shift))
        if constant:
            raise _NotACopyError
        return shifted

    # ---- padding ----

    @cached_property
    def _asked(self) -> frozenset[int]:
        """The iteration variables that decide what is padding."""
        values = [v for condition, _ in self.guard.conditions for v in condition.walk()]
        return frozenset(int(v.literal) for v in values if v.op == "iter")

    def _range(self, axis: _CopyAxis) -> tuple[int, int]:
        """The half-open range of the axis's number that is read."""
        iters = {d.axis for d in axis.digits}
        if not iters & self._asked:
            return (0, _size(axis.digits)) if isinstance(axis.room, int) else (0, 0)
        values = self._grid(iters | self._asked)
        inside = self._inside(values)
        number = np.broadcast_to(_number_at(axis.digits, values), inside.shape)[inside]
        return int(number.min()), int(number.max()) + 1

    def _check_box(self, axes: Sequence[_CopyAxis], ranges: Sequence[tuple[int, int]]) -> None:
        """What is read is just what lies in all ranges."""
        if not self.guard.conditions:
            return
        asking = [(a, r) for a, r in zip(axes, ranges, strict=True) if {d.axis for d in a.digits} & self._asked]
        values = self._grid({d.axis for axis, _ in asking for d in axis.digits} | self._asked)
        inside = self._inside(values)
        box: Any = np.array(True)
        for axis, (low, high) in asking:
            number = _number_at(axis.digits, values)
            box = box & (low <= number) & (number < high)
        if not np.array_equal(np.broadcast_to(box, inside.shape), inside):
            raise _NotACopyError

    def _inside(self, values: Mapping[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
        shape = np.broadcast_shapes(*(v.shape for v in values.values()))
        inside = np.full(shape, True)
        for condition, wanted in self.guard.conditions:
            found = values_at(condition, values)
            if found is None:
                raise _NotACopyError
            inside &= np.asarray(found, dtype=bool) == wanted
        if not inside.any():
            raise _NotACopyError
        return inside

    def _grid(self, iters: Set[int]) -> dict[int, npt.NDArray[np.int64]]:
        extents = {i: _int(self.block.extents[i]) for i in sorted(iters)}
        if math.prod(extents.values()) > MAX_POINTS:
            raise _NotACopyError
        values: dict[int, npt.NDArray[np.int64]] = {}
        for place, (number, extent) in enumerate(extents.items()):
            shape = [extent if p == place else 1 for p in range(len(extents))]
            values[number] = np.arange(extent, dtype=np.int64).reshape(shape)
        return values


# ---- small arithmetic ----


def _groups(terms: Sequence[Term], merges: bool) -> list[list[Term]]:
    """Terms, heaviest first, in runs without gaps; each alone if they are not to be merged."""
    groups: list[list[Term]] = []
    for term in terms:
        if merges and groups and groups[-1][-1].weight == term.weight * _int(term.extent):
            groups[-1].append(term)
        else:
            groups.append([term])
    return groups


def _terms(digits: Sequence[Digit]) -> list[Term]:
    """The number that ``digits`` write."""
    terms: list[Term] = []
    place = 1
    for axis, stride, extent in reversed(digits):
        terms.append(Term(place, axis, stride, extent))
        place *= _int(extent)
    return terms


def _int(extent: Extent) -> int:
    if isinstance(extent, str):
        raise _NotACopyError
    return extent


def _size(digits: Sequence[Digit]) -> int:
    return math.prod(_int(d.extent) for d in digits)


def _number_at(digits: Sequence[Digit], values: Mapping[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    total: Any = np.array(0)
    for axis, stride, extent in digits:
        total = total * _int(extent) + values[axis] // stride % _int(extent)
    return np.asarray(total)
