"""One step of flow: from the format of one buffer of a block to the format that keeps another buffer in step with it.

In: a block, an access with the map of its buffer, and an access to another buffer. Out: that buffer's map, or why no
map keeps the two in step.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Extent, IndexMap
from eqsat_layout.tir.computation import Access, Block, Buffer, Role
from eqsat_layout.tir.dimensions import Dimension, are_in_step, dimensions
from eqsat_layout.tir.physical_axes import (
    MappedAccess,
    PhysicalAxis,
    RefusedError,
    found_or_refused,
    physical_axes,
    refusal_of,
    resized_digit,
)


class Placing(enum.Enum):
    """Where a dimension goes that nothing says a place for, when no later dimension is placed."""

    LAST = "behind all others"
    NEAR = "behind the outermost digit of the dimension before it"


@dataclass(frozen=True)
class Transferred:
    """The map of a buffer, or why there is none. ``is_placed``: another :class:`Placing` may give another one;
    ``is_paired``: so may other pairs."""

    found: IndexMap | RefusedError
    is_placed: bool = False
    is_paired: bool = False


def transfer(
    block: Block,
    source: MappedAccess,
    target: Access,
    buffer: Buffer,
    *,
    placing: Placing,
    aligns: bool,
    pairs: Mapping[int, int],
) -> Transferred:
    """The map of ``buffer``, accessed as ``target``, that is in step with the map of the ``source``.

    ``aligns``: an operand that is broadcast keeps emptied axes, so that
    it still lines up with the result from the right. ``pairs``: variables of the source that the target does not have,
    and the variables of the target that take their places.
    """
    if source.shape == buffer.shape == source.index_map.shape and are_in_step(block, source.access, target):
        return Transferred(source.index_map)
    own = (buffer.shape, buffer.role, placing, aligns, *pairs.items())
    question = (source.access, tuple(source.shape), source.index_map.key, target, own)
    found: Transferred | None = block.derived.get(question)
    if found is None:  # each way of placing asks again for what does not depend on it
        aligned = aligns and buffer.role is Role.OPERAND and _is_broadcast(block, source.access, target)
        layout = _ToLayOut(block, source, target, buffer, placing, aligned, pairs)
        found = block.derived[question] = layout.transferred()
    return found


def covers(block: Block, source: Access, target: Access, shape: Sequence[Extent]) -> bool:
    """Every dimension of the target runs along a variable of the source, so its map follows entirely."""
    known = source.iters
    for index, extent in zip(target.indices, shape, strict=True):
        if extent != 1 and not (index.iters and known.issuperset(index.iters)):
            return False
    return True


def _is_broadcast(block: Block, result: Access, operand: Access) -> bool:
    """The operand is read as NumPy broadcasts it: its dimensions are the result's last ones, or stand still."""
    written, read = dimensions(block, result), dimensions(block, operand)
    if operand.iters.issuperset(v for own in written for v in own.moving):
        return False
    pairs = zip(reversed(read), reversed(written), strict=False)
    return len(read) <= len(written) and all(not own.moving or own.at == other.at for own, other in pairs)


@dataclass
class _ToLayOut:
    block: Block
    source: MappedAccess
    access: Access
    buffer: Buffer
    placing: Placing
    is_aligned: bool
    pairs: Mapping[int, int]
    placed: set[int] = field(default_factory=set)
    is_placed: bool = False
    is_paired: bool = False
    slots: list[PhysicalAxis] = field(init=False)
    along: tuple[Dimension, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.along = dimensions(self.block, self.access)

    def transferred(self) -> Transferred:
        found: IndexMap | RefusedError
        try:
            self.slots = physical_axes(self.block, self.source)
            found = self._index_map()
        except RefusedError as refusal:
            found = RefusedError(refusal.reason, refusal.buffer)  # without the frames that it was raised in
        return Transferred(found, self.is_placed, self.is_paired)

    def _index_map(self) -> IndexMap:
        self._carry()
        self._take_units()
        known = self.source.access.iters
        # a unit dimension whose variable has no axis of its own in the source needs none here
        pending = [dim for dim, own in enumerate(self.along) if dim not in self.placed and own.unit not in known]
        for dim in reversed(pending if self._keeps_places() else self._fill(pending)):
            self.slots.insert(self._place_of(dim), self._filled(PhysicalAxis([]), dim))
        self._drop_free()
        try:
            return IndexMap.make(self.buffer.shape, [slot.digits for slot in self.slots])
        except LayoutError:
            reason = "its accesses don't determine a bijective map for the other tensors"
            raise RefusedError(reason, self.access.buffer) from None

    def _keeps_places(self) -> bool:
        """An operand of a contraction has axes of its own, so what the result lacks is not put on what it lacks."""
        is_written = any(w.buffer == self.access.buffer for w in self.block.writes)
        return self.block.is_contraction and self.buffer.role is Role.OPERAND and not is_written

    def _carry(self) -> None:
        """Replaces digits of variables by digits of the dimensions that they run along."""
        carriers: dict[int, list[int]] = {}
        for dim, own in enumerate(self.along):
            for axis in own.moving:
                carriers.setdefault(axis, []).append(dim)
        for slot in self.slots:
            paired = [self._paired(digit, carriers) for digit in slot.digits] if self.pairs else slot.digits
            slot.digits = [d for digit in paired for d in self._onto_dims(digit, carriers.get(digit.axis, ()))]
            self.placed.update(d.axis for d in slot.digits)

    def _paired(self, digit: Digit, carriers: Mapping[int, object]) -> Digit:
        """The digit of the variable that takes the place of one that the target does not have."""
        other = self.pairs.get(digit.axis)
        if other is None or digit.axis in carriers or other not in carriers:
            return digit
        self.is_paired = True
        sizes = self.block.extents[digit.axis], self.block.extents[other]
        dim = next(d for d, index in enumerate(self.access.indices) if other in index.iters)
        return found_or_refused(
            resized_digit(digit._replace(axis=other), *sizes, 0), self.block, self.access, dim, digit, sizes[0]
        )

    def _onto_dims(self, digit: Digit, carriers: Sequence[int]) -> list[Digit]:
        parts: list[tuple[int, Digit]] = []
        for dim in carriers:
            size, extent, own = self.buffer.shape[dim], self.block.extents[digit.axis], self.along[dim]
            if own.shift is not None:
                made = resized_digit(Digit(dim, digit.stride, digit.extent), extent, size, own.shift[1])
                return [found_or_refused(made, self.block, self.access, dim, digit, extent)]
            radix = own.radix_of(size)
            if radix is None:
                if digit.extent != extent or len(own.spatial) > 1:
                    raise refusal_of(self.block, self.access, dim, digit, extent)
                return [Digit(dim, 1, size)]
            parts.extend(found_or_refused(_overlaps(digit, radix, dim), self.block, self.access, dim, digit, extent))
        return [part for _, part in sorted(parts, reverse=True)]

    def _take_units(self) -> None:
        """A unit dimension that runs along a variable of extent 1 stays on that variable's axis."""
        own = {along.unit: dim for dim, along in reversed(list(enumerate(self.along)))}
        for slot in self.slots:
            if slot.unit is not None and slot.unit in own:
                self._filled(slot, own[slot.unit])

    def _fill(self, pending: list[int]) -> list[int]:
        """Puts dimensions on emptied axes, in order, and returns those that are left.

        What is written takes the first axes; what is broadcast is aligned on the right, as Relax does it.
        """
        free = [slot for slot in self.slots if slot.is_free]
        count = min(len(free), len(pending))
        is_written = any(w.buffer == self.access.buffer for w in self.block.writes)
        first = 0 if is_written and len(pending) <= len(free) else len(free) - count
        for slot, dim in zip(free[first : first + count], pending[len(pending) - count :], strict=True):
            self._filled(slot, dim)
        return pending[: len(pending) - count]

    def _filled(self, slot: PhysicalAxis, dim: int) -> PhysicalAxis:
        slot.dim = dim
        if self.buffer.shape[dim] != 1:
            slot.digits = [Digit(dim, 1, self.buffer.shape[dim])]
        self.placed.add(dim)
        return slot

    def _place_of(self, dim: int) -> int:
        """Just before the next dimension that has a place; else behind all, or near the dimension before."""
        tops: dict[int, tuple[int, int]] = {}
        for position, slot in enumerate(self.slots):
            if slot.dim is not None:
                tops[slot.dim] = (0, position)
            for digit in slot.digits:
                tops[digit.axis] = max(tops.get(digit.axis, (0, 0)), (digit.stride, position))
        later = [d for d in tops if d > dim]
        earlier = [d for d in tops if d < dim]
        if later:
            return tops[min(later)][1]
        last = len(self.slots)
        near = tops[max(earlier)][1] + 1 if earlier else last
        self.is_placed |= not all(map(self._is_dropped, self.slots[near:]))
        return near if self.placing is Placing.NEAR else last

    def _drop_free(self) -> None:
        """Emptied axes go, but an aligned operand keeps those that it lines up with."""
        if self.is_aligned:
            while self.slots and self.slots[0].is_free:
                del self.slots[0]
        else:
            self.slots = [slot for slot in self.slots if not self._is_dropped(slot)]

    def _is_dropped(self, slot: PhysicalAxis) -> bool:
        return slot.is_free and slot.emptied and not self.is_aligned


def _overlaps(digit: Digit, radix: Sequence[Digit], dim: int) -> list[tuple[int, Digit]] | None:
    """The parts of ``digit`` that dimension ``dim``, written by ``radix``, runs along, with strides; None if cut."""
    assert isinstance(digit.extent, int)
    parts: list[tuple[int, Digit]] = []
    place = 1
    for axis, stride, extent in reversed(radix):
        assert isinstance(extent, int)
        first = max(stride, digit.stride)
        last = min(stride * extent, digit.stride * digit.extent)
        if axis == digit.axis and first < last:
            if first % stride or first % digit.stride or last % first:
                return None
            parts.append((first, Digit(dim, place * (first // stride), last // first)))
        place *= extent
    return parts
