"""What the dimensions of an access run along, whatever the map of its buffer is.

In: a block and an access of it. Out: a :class:`Dimension` for each index, read once for all maps that flow asks about.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from eqsat_layout.maps import Digit, Extent
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Index


class Dimension(NamedTuple):
    """``moving``: variables of more than one value in the index ``at``, ``spatial`` those of them that are not reduced.

    ``shift``: ``(v, c)`` if that is ``v + c`` and ``v`` moves. ``unit``: the variable of extent 1 that it is.
    ``radix``: the digits that it writes if its variables are of one kind, numbers below ``size``.
    """

    at: Index
    moving: tuple[int, ...]
    spatial: tuple[int, ...]
    shift: tuple[int, int] | None
    unit: int | None
    radix: tuple[Digit, ...]
    size: int

    def radix_of(self, size: Extent) -> tuple[Digit, ...] | None:
        """The digits, if they cover a dimension of ``size``."""
        return self.radix if self.radix and self.size == size else None


def dimensions(block: Block, access: Access) -> tuple[Dimension, ...]:
    """Those of ``access``, in order."""
    found: tuple[Dimension, ...] | None = block.derived.get(access)
    if found is None:
        found = block.derived[access] = tuple(_dimension(block, index) for index in access.indices)
    return found


def _dimension(block: Block, index: Index) -> Dimension:
    moving = tuple(v for v in index.iters if block.extents[v] != 1)
    spatial = tuple(filter(block.is_spatial, moving))
    if not isinstance(index, Affine):
        return Dimension(index, moving, spatial, None, None, (), 0)
    axis = index.shift_of(block.extents)
    shift = None if axis is None or axis not in moving else (axis, index.constant)
    unit = index.terms[0].iter if len(index.terms) == 1 and index.terms[0].extent == 1 else None
    digits = index.digits() or ()
    extents = [d.extent for d in digits if isinstance(d.extent, int)]
    is_radix = len(extents) == len(digits) and len({block.is_spatial(d.axis) for d in digits}) == 1
    return Dimension(index, moving, spatial, shift, unit, digits if is_radix else (), math.prod(extents))


def are_in_step(block: Block, one: Access, other: Access) -> bool:
    """Both buffers are accessed at the same place: at variables as they stand, each in one dimension."""
    found: bool | None = block.derived.get((one, other))
    if found is None:
        own = [block.variable(index) for index in one.indices]
        found = None not in own and len(set(own)) == len(own) and one.indices == other.indices
        block.derived[one, other] = found
    return found
