"""The physical axes of a buffer, each with the digits of the iteration variables that run along it.

In: a block, an access and the map of its buffer. Out: :class:`PhysicalAxis` by axis, or ``RefusedError`` where a digit
has nothing that it keeps in step with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from eqsat_layout.maps import Digit, Extent, IndexMap, slice_of_digits
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block
from eqsat_layout.tir.dimensions import Dimension, dimensions


class RefusedError(Exception):
    """No map of the other buffer keeps its accesses in step; never leaves this room.

    ``reason`` says why, of an axis of the buffer numbered ``buffer``.
    """

    def __init__(self, reason: str, buffer: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.buffer = buffer


@dataclass
class PhysicalAxis:
    """A physical axis. ``unit`` is the variable of extent 1 along it, ``dim`` the dimension that was put there."""

    digits: list[Digit]
    unit: int | None = None
    dim: int | None = None
    emptied: bool = False

    @property
    def is_free(self) -> bool:
        return not self.digits and self.dim is None


@dataclass(frozen=True)
class MappedAccess:
    """An access to a buffer of ``shape`` whose map is known."""

    access: Access
    shape: Sequence[Extent]
    index_map: IndexMap


def physical_axes(block: Block, source: MappedAccess) -> list[PhysicalAxis]:
    """Those of the buffer that is accessed; :class:`RefusedError` where the access cuts through a digit."""
    access, shape, index_map = source.access, source.shape, source.index_map
    along = dimensions(block, access)
    slots: list[PhysicalAxis] = []
    for row in index_map.dims:
        digits = [d for digit in row for d in _along_iters(block, access, along[digit.axis], shape[digit.axis], digit)]
        slots.append(PhysicalAxis(digits, emptied=bool(row)))
    empty = [s for s, row in zip(slots, index_map.dims, strict=True) if not row]
    units = [along[axis].unit for axis, extent in enumerate(shape) if extent == 1]
    for slot, unit in zip(reversed(empty), reversed(units), strict=False):
        slot.unit, slot.emptied = unit, True
    return slots


def _along_iters(block: Block, access: Access, along: Dimension, size: Extent, digit: Digit) -> Sequence[Digit]:
    """The digits of variables that run along ``digit`` of a dimension of ``size``; none where it stands still."""
    if along.shift is not None:
        axis, shift = along.shift
        own = resized_digit(Digit(axis, digit.stride, digit.extent), size, block.extents[axis], shift)
        return [found_or_refused(own, block, access, digit.axis, digit, size)]
    radix = along.radix_of(size)
    if radix is not None:
        return found_or_refused(
            slice_of_digits(radix, digit.stride, digit.extent), block, access, digit.axis, digit, size
        )
    if along.moving and (digit.extent != size or len(along.spatial) > 1):
        raise refusal_of(block, access, digit.axis, digit, size)
    return [Digit(a, 1, block.extents[a]) for a in along.spatial]


_T = TypeVar("_T")


def found_or_refused(found: _T | None, block: Block, access: Access, dim: int, digit: Digit, size: Extent) -> _T:
    """What is ``found``; :class:`RefusedError` where that is nothing."""
    if found is None:
        raise refusal_of(block, access, dim, digit, size)
    return found


def refusal_of(block: Block, access: Access, dim: int, digit: Digit, size: Extent) -> RefusedError:
    """Why ``digit``, of an axis of ``size``, has nothing in step with it on dimension ``dim`` of ``access``."""
    cut = digit.stride if digit.stride > 1 else digit.extent
    split = f"it can't be split by {cut}" if digit.extent != size else "it can't be followed"
    return RefusedError(f"axis {dim} is {_described(block, dimensions(block, access)[dim])}; {split}", access.buffer)


def _described(block: Block, along: Dimension) -> str:
    """What the dimension is to the block, in words."""
    index, moving = along.at, along.moving
    if not isinstance(index, Affine):
        return "read at an index that is no sum of loop variables"
    if len(moving) > 1 and index.digits() is None:
        window = [str(block.extents[a]) for a in moving if not block.is_spatial(a)]
        return f"a window of {' by '.join(window)}" if window else f"a sum of {len(moving)} variables"
    if len(moving) > 1:
        return "made of " + " by ".join(str(block.extents[a]) for a in moving)
    terms = [t for t in index.terms if t.extent != 1]
    if any(t.weight < 0 for t in terms):
        return "reversed"
    if any(t.weight != 1 for t in terms):
        return f"read with a stride of {terms[0].weight}"
    if index.constant:
        return f"shifted by {index.constant}"
    return f"part of an axis of {block.extents[moving[0]]}" if moving else "standing still"


def resized_digit(digit: Digit, size: Extent, other: Extent, shift: int) -> Digit | None:
    """The digit, of an axis of ``size``, on an axis of ``other`` that is shifted against it; None if it is cut.

    The top digit takes up the difference of extents; what is below it must divide both extents and the shift.
    """
    axis, stride, extent = digit
    if size == other and not shift:
        return digit
    if stride == 1 and extent == size:
        return Digit(axis, 1, other)
    if isinstance(size, str) or isinstance(other, str) or isinstance(extent, str):
        return None
    top = stride * extent == size
    low = stride if top else stride * extent
    if other % low or shift % low:
        return None
    return Digit(axis, stride, other // stride) if top else digit
