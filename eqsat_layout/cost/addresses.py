"""Where in memory neighbouring elements of a result are read and written.

In: a computation, its accesses and formats. Out: the variable that lanes run along, and how far addresses move with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat_layout.maps import Format, Formats
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import SYMBOL_SIZE, Access, Block, Computation, Opaque, assumed_size
from eqsat_layout.tir.index_values import Points, index_at, values_at

_LOOKED_AT = 64
"""Steps along a variable, at most, that tell how an index moves which is no sum of digits."""


def format_of(computation: Computation, access: Access, formats: dict[int, Format | None]) -> Format | None:
    """The format of a buffer; that of an internal one is its source's, where it is a copy axis by axis (a pad)."""
    buffer = access.buffer
    while buffer not in formats:
        writer = next((b for b in computation.blocks if any(w.buffer == buffer for w in b.writes)), None)
        if writer is None or len({r.buffer for r in writer.reads}) != 1:
            return None
        read, written = writer.reads[0], writer.writes[0]
        if [axis_of(writer, i) for i in read.indices] != [axis_of(writer, i) for i in written.indices]:
            return None
        buffer = read.buffer
    return formats[buffer]


def axis_of(block: Block, index: object) -> int | None:
    """The variable that an index is, shifted by a constant or not; ``None`` for what is more."""
    return index.shift_of(block.extents) if isinstance(index, Affine) else None


def lane_step(block: Block, write: Access, fmt: Format) -> tuple[int, int, int] | None:
    """The variable that neighbouring elements of the result differ in: its number, its step, and how many there are."""
    digits = [d for d in fmt.index_map.flat_digits if d.extent != 1]
    if not digits:
        return None
    digit = digits[-1]
    variable = axis_of(block, write.indices[digit.axis])
    if variable is None:
        return None
    return variable, digit.stride, assumed_size(digit.extent)


def address_step(block: Block, read: Access, fmt: Format, variable: int, stride: int, steps: int) -> int | None:
    """Elements by which the address of ``read`` moves in ``steps`` lanes; ``None`` where it can't be told."""
    reached = [0] * len(read.indices)  # wherever the others are, they stay there
    for dim, index in enumerate(read.indices):
        if variable in index.iters:
            moved = (
                _value(index, variable, stride * steps)
                if isinstance(index, Affine)
                else _step_of(block, index, variable, stride, steps)
            )
            if moved is None:
                return None
            reached[dim] = moved
    return _address(fmt, reached)  # it starts at 0, with all variables


def _step_of(block: Block, index: Opaque, variable: int, stride: int, steps: int) -> int | None:
    """How far an index moves that is no sum of digits, in the middle of all; ``None`` where not each step is as long,
    or one goes back."""
    count = max(steps, min(assumed_size(block.extents[variable]) // stride - 1, _LOOKED_AT))
    values = values_at(index.value, _middle(block) | {variable: np.arange(count + 1) * stride}, with_floats=True)
    each = set(np.diff(values).tolist()) if np.ndim(values) else set[int]()
    return each.pop() * steps if len(each) == 1 and min(each) >= 0 else None


def _middle(block: Block) -> dict[int, Any]:
    return {v: np.array([assumed_size(extent) // 2]) for v, extent in enumerate(block.extents)}


def lanes_along(block: Block, variable: int, lanes: int) -> Points:
    """So many neighbours along a variable, or all there are, in the middle of all others."""
    points = _middle(block)
    points[variable] = np.arange(min(lanes, assumed_size(block.extents[variable]))) + points[variable] // 2
    return points


def lanes_in_memory(block: Block, write: Access, fmt: Format, lanes: int) -> Points | None:
    """So many elements of the result that lie side by side, from its middle on; ``None`` where it can't be told."""
    digits = fmt.index_map.flat_digits
    count = math.prod(assumed_size(digit.extent) for digit in digits)
    number = np.arange(min(lanes, count)) + min(count // 2, max(0, count - lanes))
    points = _middle(block)
    moved: dict[int, Any] = {}
    for digit in reversed(digits):
        variable = axis_of(block, write.indices[digit.axis])
        if variable is None:
            return None
        number, place = np.divmod(number, assumed_size(digit.extent))
        moved[variable] = moved.get(variable, 0) + place * digit.stride
    return points | moved


def reach(read: Access, fmt: Format, points: Points) -> int | None:
    """From the first to the last element that is read at ``points``; ``None`` where it can't be told."""
    if not read.indices:  # one element
        return 1
    reached = [index_at(index, points, with_floats=True) for index in read.indices]
    if any(values is None for values in reached):
        return None
    along = np.broadcast_arrays(*points.values(), *reached)[len(points) :]
    addresses = [_address(fmt, own) for own in zip(*(values.tolist() for values in along), strict=True)]
    return max(addresses) - min(addresses) + 1


def elements_between_lookups(block: Block, read: Access, write: Access, fmt: Format) -> int | None:
    """Elements of the result that lie side by side and have the same index that is no sum of digits in ``read``;
    ``None`` where there is no such index."""
    looked_up = {v for index in read.indices if isinstance(index, Opaque) for v in index.iters}
    if not looked_up:
        return None
    count = 1
    for digit in reversed(fmt.index_map.flat_digits):
        if axis_of(block, write.indices[digit.axis]) in looked_up:
            return count
        count *= assumed_size(digit.extent)
    return None


def _value(index: Affine, variable: int, point: int) -> int:
    """The index where ``variable`` is ``point`` and all others are 0; constants only shift it and are left out."""
    total = 0
    for weight, axis, stride, extent in index.terms:
        if axis == variable:
            value = point // stride
            total += weight * (value % extent if isinstance(extent, int) and extent else value)
    return total


def _address(fmt: Format, index: Sequence[int]) -> int:
    address, weight = 0, 1
    for axis, stride, size in reversed(fmt.index_map.flat_digits):
        extent = size if isinstance(size, int) else SYMBOL_SIZE
        if index[axis] and extent:
            address += index[axis] // stride % extent * weight
        weight *= extent
    return address


def place_variables(read: Access) -> set[int]:
    """Those that the place depends on."""
    return {variable for index in read.indices if isinstance(index, Affine) for variable in index.iters}


def slides_along_vectors(computation: Computation, operands: Formats, results: Formats) -> bool:
    """Some window of a contraction moves along what is contiguous, in an operand or the result, as far as their formats
    are known: vectors at a border are partly in the padding."""
    formats = dict(zip(computation.operands, operands, strict=True))
    formats |= dict(zip(computation.results, results, strict=True))
    for block in computation.blocks if computation.is_contraction else ():
        written = format_of(computation, block.writes[0], formats) if len(block.stores) == 1 else None
        step = None if written is None else lane_step(block, block.writes[0], written)
        for read in block.reads:
            if step is not None and step[0] in read.sliding:
                return True
            fmt = format_of(computation, read, formats)
            digits = [] if fmt is None else [d for d in fmt.index_map.flat_digits if d.extent != 1]
            index = read.indices[digits[-1].axis] if digits else None
            if isinstance(index, Affine) and sum(block.extents[i] != 1 for i in index.iters) > 1:
                return True
    return False
