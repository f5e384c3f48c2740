"""Products among the ops of a plan, as the build will find them.

In: an op's heaviest block and the formats of what it reads and writes. Out: the shape of the product that the kernel of
these layouts will be, or ``None`` for what will be no product (:mod:`.kernels.products` says so of the kernel itself).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.addresses import address_step, axis_of
from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.cost.vectorise import Heaviest
from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Format
from eqsat_layout.targets.cuda.kernels.arithmetics import UNIT, common_type
from eqsat_layout.targets.cuda.kernels.bulk_tiles import MOST_OUTER
from eqsat_layout.targets.cuda.kernels.operands import SUMS
from eqsat_layout.targets.cuda.kernels.product_shape import ProductShape
from eqsat_layout.targets.cuda.kernels.products import FEW
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation, assumed_size
from eqsat_layout.tir.sized import sized_extent

_COPIES: Final = (16, 8, 4)
"""Bytes of an asynchronous copy."""


def planned_product(heavy: Heaviest, computation: Computation, result: str, padded: float) -> ProductShape | None:
    """``result``: the dtype of the op's; ``padded``: how much longer sums are by padding."""
    dtypes = [buffer.dtype for buffer in computation.buffers]
    if not heavy.block.is_contraction or not heavy.is_known or len(heavy.reads) != 2:
        return None
    given = {dtypes[read.buffer] for read, _ in heavy.reads}
    groups = _groups(heavy) if given <= set(SUMS) else None
    if groups is None:
        return None
    first, second = groups.own
    along = None if heavy.step is None else heavy.step[0]
    is_swapped = along in first if along in (*first, *second) else groups.sizes[1] == 1
    order = (1, 0) if is_swapped else (0, 1)
    rows, columns = (groups.sizes[side] for side in order)
    if columns == 1 or (rows == 1 and (groups.steps < FEW or _slides(heavy.reads[order[1]][0], groups))):
        return None
    dtype = common_type(*(dtypes[heavy.reads[side][0].buffer] for side in order))
    of_floats = dtype == "float32"

    def together(side: int) -> tuple[int, int]:
        """Bytes along the steps, and across."""
        read, fmt = heavy.reads[side]
        if of_floats and dtypes[read.buffer] != dtype:  # converted on its way to shared memory, by threads
            return 0, 0
        size = round(dtype_bytes(dtypes[read.buffer]))
        own = groups.own[side] if size > 1 else ()
        return (
            _together(heavy.block, read, fmt, groups.summed, size),
            _together(heavy.block, read, fmt, own, size),
        )

    steps, result_bytes = math.ceil(groups.steps * padded), math.ceil(dtype_bytes(result))
    sides = [together(side) for side in order]
    copies, are_along = (max(sides[0]), max(sides[1])), all(along >= across for along, across in sides)
    sizes = [_elements(computation, heavy.reads[side][0].buffer) for side in order]
    left, right = (min(groups.batch * own * steps, size) for own, size in zip((rows, columns), sizes, strict=True))
    are_rows = all(
        _are_rows(*heavy.reads[side], computation, heavy.block, groups.own[side], groups.summed) for side in order
    )
    is_known = all(isinstance(extent, int) for extent in heavy.block.extents)
    operands = copies, (left, right)
    return ProductShape(
        dtype, groups.batch, rows, columns, steps, *operands, result_bytes, are_along, are_rows, is_known
    )


def _are_rows(
    read: Access, fmt: Format, computation: Computation, block: Block, own: Sequence[int], summed: Sequence[int]
) -> bool:
    """An operand of halves in which the steps lie side by side, the rest at even distances of whole units."""
    buffer, digits = computation.buffers[read.buffer], [d for d in fmt.index_map.flat_digits if d.extent != 1]
    if not _is_operand(computation, read.buffer) or dtype_bytes(buffer.dtype) != 2 or any(map(any, fmt.padding)):
        return False
    axes = [digit.axis for digit in digits]
    variables = [axis_of(block, index) if not _begins_later(index) else None for index in read.indices]
    if len({*axes}) < len(axes) or any(variables[axis] is None for axis in axes):
        return False
    strides, place = dict[int, int](), 1
    for digit in reversed(digits):
        strides[variables[digit.axis] or 0] = place
        place *= assumed_size(digit.extent)
    outer = [one for one in strides if one not in summed and one not in own]
    apart = [_as_one_axis(block, one, strides) for one in (summed, own)]
    rest = (apart[1], *(strides[one] for one in outer))
    return apart[0] == 1 and len(outer) <= MOST_OUTER and all(one > 0 and 2 * one % UNIT == 0 for one in rest)


def _is_operand(computation: Computation, buffer: int) -> bool:
    """It is one, or the same copied: as it is padded by nothing."""
    while buffer not in computation.operands:
        stores = [one for block in computation.blocks for one in block.stores if one.access.buffer == buffer]
        source = stores[0].value.access if len(stores) == 1 else None
        if source is None or computation.buffers[source.buffer].shape != computation.buffers[buffer].shape:
            return False
        buffer = source.buffer
    return True


def _begins_later(index: object) -> bool:
    return not isinstance(index, Affine) or index.constant != 0


def _as_one_axis(block: Block, variables: Sequence[int], strides: Mapping[int, int]) -> int:
    """How far elements along them lie apart, 0 where not all do so."""
    given = sorted((strides[one], assumed_size(block.extents[one])) for one in variables if one in strides)
    even = len(given) == len(variables) and all(
        later == stride * extent for (stride, extent), (later, _) in itertools.pairwise(given)
    )
    return given[0][0] if even and given else 0


def _slides(read: Access, groups: _Groups) -> bool:
    """Windows: an index counts places and steps."""
    places = {variable for own in groups.own for variable in own}
    return any(places & set(index.iters) and set(groups.summed) & set(index.iters) for index in read.indices)


def _elements(computation: Computation, buffer: int) -> int:
    """Of the largest operand that the buffer is, or is made of: one that is padded first, say."""
    behind = {buffer}
    for block in reversed(computation.blocks):
        if any(write.buffer in behind for write in block.writes):
            behind |= {read.buffer for read in block.reads}
    own = behind & {*computation.operands} or {buffer}  # of no operand: a mask that is made in the kernel
    return max(math.prod(map(assumed_size, computation.buffers[one].shape)) for one in own)


@dataclass
class _Groups:
    """Of variables: those of the batch, of either operand alone (``sizes``, ``own``), and those that are summed."""

    batch: int = 1
    sizes: tuple[int, int] = (1, 1)
    steps: int = 1
    own: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    summed: tuple[int, ...] = ()

    def grow(self, side: int, variable: int, extent: int) -> None:
        """A variable of one operand."""
        if extent > 1:
            sizes, own = list(self.sizes), list(self.own)
            sizes[side] *= extent
            own[side] = (*own[side], variable)
            self.sizes, self.own = (sizes[0], sizes[1]), (own[0], own[1])


def _groups(heavy: Heaviest) -> _Groups | None:
    """``None`` where symbols as they are assumed make no sizes, or a variable is of no group."""
    found, block = _Groups(), heavy.block
    try:
        extents = [sized_extent(extent, {}) for extent in block.extents]
    except LayoutError:
        return None
    for variable, extent in enumerate(extents):
        if block.extents[variable] == 1:
            continue
        shares = [_share(read, variable, extent) for read, _ in heavy.reads]
        if not any(shares):
            return None
        if block.is_spatial(variable):
            blocks = max(1, min(shares))  # one may hang on blocks of the variable only, as in a grouped convolution
            found.batch *= blocks
            found.grow(0 if shares[0] > shares[1] else 1, variable, extent // blocks)
        elif all(shares):
            found.steps *= extent
            found.summed += (variable,)
        else:
            return None
    return found


def _share(read: Access, variable: int, extent: int) -> int:
    """How many of the variable's values a read tells apart; 0: it does not depend on it."""
    strides = []
    for index in read.indices:
        if isinstance(index, Affine):
            strides += [term.stride for term in index.terms if term.iter == variable]
        elif variable in index.iters:
            strides.append(1)
    return extent // min(strides) if strides else 0


def _together(block: Block, read: Access, fmt: Format, variables: Sequence[int], size: int) -> int:
    """The most bytes that lie side by side along one of the variables, and start where a copy of so many may."""
    for together in _COPIES:
        count = together // size
        for variable in variables:
            extent = block.extents[variable]
            if not isinstance(extent, int) or not _starts_even(read, variable, count):
                continue
            steps = min(count, extent) - 1  # what is padding comes after the last one
            is_whole = _padded_extent(block, read, fmt, variable, extent) % count == 0
            if is_whole and address_step(block, read, fmt, variable, 1, steps) == steps:
                return together
    return 0


def _padded_extent(block: Block, read: Access, fmt: Format, variable: int, extent: int) -> int:
    """With the padding behind the axis that the variable is."""
    axes = [axis for axis, index in enumerate(read.indices) if axis_of(block, index) == variable]
    return extent + sum(fmt.padding[axis][1] for axis in axes)


def _starts_even(read: Access, variable: int, count: int) -> bool:
    """Runs of so many along the variable start at multiples of it: no other variable shifts them, as in a window."""
    indices = [index for index in read.indices if variable in index.iters]
    return all(
        isinstance(index, Affine)
        and index.constant % count == 0
        and all(term.iter == variable or term.weight % count == 0 for term in index.terms)
        for index in indices
    )
