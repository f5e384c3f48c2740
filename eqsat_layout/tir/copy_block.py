"""Reads a block that only copies: as an index map with a crop and a pad, if it is one.

In: a block of a :class:`Computation`. Out: a :class:`LayoutRewrite` from the one buffer that it reads to the one that
it writes, or ``None``. Indices are read exactly as digits; which points are padding is found by evaluating the block's
condition at every point of the iteration variables in it, and must be a box.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Extent, IndexMap, extent_product
from eqsat_layout.tir.access_maps import access_map
from eqsat_layout.tir.affine import Affine, Term
from eqsat_layout.tir.computation import Block, Computation, Store
from eqsat_layout.tir.copy_digits import NotACopyError, known, values_of_digits
from eqsat_layout.tir.copy_guard import Guard, GuardedPoints, guard_of
from eqsat_layout.tir.copy_numbers import Number, NumberedIndices, NumberFinder
from eqsat_layout.tir.layout_rewrite import LayoutRewrite


def read_copy(computation: Computation, block: Block) -> tuple[int, int, LayoutRewrite] | None:
    """``(source, target, rewrite)``, buffers by number, of a block that copies one buffer to all of another."""
    if len(block.stores) != 1 or block.inits or not all(map(block.is_spatial, range(len(block.iters)))):
        return None
    (store,) = block.stores
    guard = guard_of(store.value)
    if guard is None or guard.load.access is None or guard.load.access.buffer == store.access.buffer:
        return None
    try:
        rewrite = _CopyReader(computation, block, store, guard).rewrite()
    except (NotACopyError, LayoutError):
        return None
    return guard.load.access.buffer, store.access.buffer, rewrite


# ---- the middle: the logical tensor between unpacking and packing ----


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
    guard: Guard
    shape: tuple[Extent, ...] = ()
    numbers: Sequence[Number] = ()

    def rewrite(self) -> LayoutRewrite:
        written = access_map(self.computation, self.block, self.store.access)
        access = self.guard.load.access
        if written is None or access is None:
            raise NotACopyError
        source, target = self.computation.buffers[access.buffer], self.computation.buffers[self.store.access.buffer]
        if source.dtype != target.dtype:
            raise NotACopyError
        self.shape = source.shape
        finder = NumberFinder(source.shape, access.indices, self.block.extents, self.guard.conditions)
        for numbers, merges in itertools.product(finder.choices(), (True, False)):
            self.numbers = numbers
            try:
                numbered = NumberedIndices(self.block.extents, numbers)
                indices = [numbered.read(index) for index in access.indices]
                return self._assembled(self._axes(indices, merges), written)
            except (NotACopyError, LayoutError):
                continue
        raise NotACopyError

    def _assembled(self, axes: list[_CopyAxis], written: IndexMap) -> LayoutRewrite:
        used = {d.axis for axis in axes for d in axis.digits}
        for number, extent in enumerate(self.block.extents):
            if number not in used and extent != 1:  # a unit axis of the source that is padded all around
                digits = (Digit(number, 1, extent),)
                unit = next((i for i, a in enumerate(axes) if a.room == 1 and not a.digits), len(axes))
                axes[unit : unit + 1] = [_CopyAxis(axes[unit].source if unit < len(axes) else (), 1, digits, 0, unit)]
        axes.sort(key=lambda a: a.order)
        ranges = [self._range(axis) for axis in axes]
        self._points.check_box([(axis.digits, bounds) for axis, bounds in zip(axes, ranges, strict=True)])
        crop, pad = [], []
        for axis, (low, high) in zip(axes, ranges, strict=True):
            is_whole = isinstance(axis.room, str)
            first = low + axis.shift if axis.room != 1 else 0
            crop.append((0, 0) if is_whole else (first, known(axis.room) - first - (high - low)))
            pad.append((0, 0) if is_whole else (low, values_of_digits(axis.digits) - high))
        unpack = IndexMap.make(self.shape, [axis.source for axis in axes])
        inverse = IndexMap.make(self.block.extents, [axis.digits for axis in axes]).inverse()
        pack = None if inverse is None else written.after(inverse)
        if pack is None:
            raise NotACopyError
        pack = IndexMap.make(pack.shape, pack.dims)
        return LayoutRewrite.make(unpack, crop=crop, pad=pad, fill=self.guard.fill, pack=pack)

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
            if digits is None or values_of_digits(digits) != self.shape[axis]:
                raise NotACopyError
            rows.append([d._replace(axis=places[d.axis]) for d in digits])
        inverse = IndexMap.make(extents, rows).inverse()
        if inverse is None:
            raise NotACopyError
        axes: list[_CopyAxis] = []
        for i, row, extent in zip(used, inverse.dims, extents, strict=True):
            if extent == 1:
                continue
            source = tuple(d._replace(axis=exact[d.axis]) for d in row)
            number = self.numbers[i - first] if i >= first else Number((Digit(i, 1, extent),), 0, known(extent))
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
        constant, room_above = index.constant, known(size)
        for group in _groups(terms, merges) or [[]]:
            weight = group[-1].weight if group else 1
            if weight < 1 or room_above % weight:
                raise NotACopyError
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
                room = known(row.room)
                shift %= room
                shift -= room if self._range(row)[0] + shift >= room else 0
            constant -= shift * digit.stride
            shifted.append(replace(row, shift=shift))
        if constant:
            raise NotACopyError
        return shifted

    @cached_property
    def _points(self) -> GuardedPoints:
        return GuardedPoints(self.guard.conditions, self.block.extents)

    def _range(self, axis: _CopyAxis) -> tuple[int, int]:
        """The half-open range of the axis's number that is read; (0, 0) of a symbolic axis, which is read whole."""
        if isinstance(axis.room, str) and not self._points.decide(axis.digits):
            return 0, 0
        return self._points.range_of(axis.digits)


def _groups(terms: Sequence[Term], merges: bool) -> list[list[Term]]:
    """Terms, heaviest first, in runs without gaps; each alone if they are not to be merged."""
    groups: list[list[Term]] = []
    for term in terms:
        if merges and groups and groups[-1][-1].weight == term.weight * known(term.extent):
            groups[-1].append(term)
        else:
            groups.append([term])
    return groups
