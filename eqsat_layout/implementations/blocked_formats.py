"""Formats of tensors whose axes are permuted, padded or cut into blocks.

In: a shape and what is asked of its axes. Out: a :class:`Format`, or combinations of such.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from eqsat_layout.maps import Digit, Extent, Format, IndexMap, Padding

_MOST_COMBINATIONS: Final = 64
"""Of formats of a contraction's operands and result: four of each of three."""


def axis_last(shape: Sequence[Extent], axis: int) -> Format:
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    return Format.make(IndexMap.permutation(shape, order))


def padded_at_end(shape: Sequence[Extent], axis: int, block: int) -> Format:
    """As it is, with as many elements more along an axis as its last block has too few. Padded with 0."""
    extent = shape[axis]
    assert isinstance(extent, int), "symbolic axes are not padded"
    more = -extent % block
    padded = [extent + more if number == axis else size for number, size in enumerate(shape)]
    padding = tuple((0, more if number == axis else 0) for number in range(len(shape)))
    return Format.make(IndexMap.identity(padded), padding=padding, fill=0.0)


def blocked(shape: Sequence[Extent], axis: int, block: int) -> Format:
    return in_blocks(shape, [(axis, block)])


def in_blocks(shape: Sequence[Extent], inner: Sequence[tuple[int, int]], front: int | None = None) -> Format:
    """The axes in order, their blocks after them; ``front``: the axis that comes first of all. Padded with 0.

    An axis that comes twice has blocks of blocks.
    """
    padded = list(shape)
    padding: list[tuple[int, int]] = [(0, 0)] * len(padded)
    blocks: dict[int, int] = {}
    for axis, block in inner:
        blocks[axis] = blocks.get(axis, 1) * block
    for axis, block in blocks.items():
        extent = padded[axis]
        assert isinstance(extent, int), "symbolic axes are not blocked"
        padding[axis] = (0, -extent % block)
        padded[axis] = extent + padding[axis][1]
    order = [i for i in range(len(padded)) if i == front] + [i for i in range(len(padded)) if i != front]
    dims: list[list[Digit]] = []
    for axis in order:
        extent = padded[axis]
        if axis in blocks:
            assert isinstance(extent, int)
            dims.append([Digit(axis, blocks[axis], extent // blocks[axis])])
        else:
            dims.append([Digit(axis, 1, extent)])
    strides = dict.fromkeys(blocks, 1)
    digits: list[Digit] = []
    for axis, block in reversed(inner):
        digits.insert(0, Digit(axis, strides[axis], block))
        strides[axis] *= block
    dims += [[digit] for digit in digits]
    pads: Padding = tuple(padding)
    return Format.make(IndexMap.make(padded, dims), padding=pads, fill=0.0)


def free_formats(known: Sequence[Sequence[Format]], number: int, fmt: Format) -> Iterator[tuple[Format, ...]]:
    """The combinations of known formats, one list per buffer, in which buffer ``number`` has ``fmt``.

    Where these are many, buffers of one shape are all in one format: nine taps of a window that are added up.
    """
    choices = [[fmt] if i == number else list(own) for i, own in enumerate(known)]
    if math.prod(map(len, choices)) <= _MOST_COMBINATIONS:
        yield from itertools.product(*choices)
        return
    shapes = [own[0].shape if own else () for own in known]
    kinds = list(dict.fromkeys(shapes))
    common = [[f for f in dict.fromkeys(itertools.chain(*known)) if f.shape == shape] for shape in kinds]
    common[kinds.index(fmt.shape)] = [fmt]
    for chosen in itertools.islice(itertools.product(*common), _MOST_COMBINATIONS):
        yield tuple(chosen[kinds.index(shape)] for shape in shapes)


def moves_whole_axes(fmt: Format) -> bool:
    """The format permutes the axes of the tensor, cuts none, and no more: any contraction can be run so."""
    whole = all(digit.extent == fmt.index_map.shape[digit.axis] for digit in fmt.index_map.flat_digits)
    return whole and not fmt.is_padded and not fmt.separators
