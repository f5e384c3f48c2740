"""Accesses as bijections between the iteration variables of a block and the elements of a buffer.

In: a :class:`Computation`. Out: an index map, or ``None`` where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Dims, Extent, IndexMap
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation
from eqsat_layout.tir.extents import extent_over


def view_map(computation: Computation) -> IndexMap | None:
    """The bijection from the operand's indices to the result's if the function only copies, else ``None``.

    Reshape, transpose, a layout transform, adding and dropping unit axes all are of this form.
    """
    if len(computation.operands) != 1 or len(computation.results) != 1:
        return None
    views = {computation.operands[0]: IndexMap.identity(computation.buffers[computation.operands[0]].shape)}
    for block in computation.blocks:
        step = _copy_map(computation, block)
        if step is None:
            return None
        source, target, index_map = step
        if source not in views or target in views:
            return None
        view = index_map.after(views[source])
        if view is None:
            return None
        views[target] = view
    return views.get(computation.results[0])


def _copy_map(computation: Computation, block: Block) -> tuple[int, int, IndexMap] | None:
    """``(source, target, map)`` of a block that copies all of one buffer to all of another."""
    if len(block.stores) != 1 or block.inits or any(not block.is_spatial(i) for i in range(len(block.iters))):
        return None
    (store,) = block.stores
    source = store.value.access
    if source is None or source.buffer == store.access.buffer:
        return None
    read = access_map(computation, block, source)
    written = access_map(computation, block, store.access)
    if read is None or written is None:
        return None
    index_map = _between(read, written)
    return None if index_map is None else (source.buffer, store.access.buffer, index_map)


def _between(read: IndexMap, written: IndexMap) -> IndexMap | None:
    """``written o read^-1``, both being maps from the iteration variables."""
    back = read.inverse()
    try:
        index_map = None if back is None else written.after(back)
        return index_map and IndexMap.make(index_map.shape, index_map.dims)
    except LayoutError:
        return None


def access_map(computation: Computation, block: Block, access: Access) -> IndexMap | None:
    """The bijection from the block's iteration variables to the buffer's indices; ``None`` if it is none."""
    dims = []
    for index in access.indices:
        digits = index.digits() if isinstance(index, Affine) else None
        if digits is None:
            return None
        dims.append(digits)
    index_map = IndexMap(block.extents, _without_units(dims))
    if index_map.result_shape != computation.buffers[access.buffer].shape:
        return None
    return index_map if tiles(index_map) else None


def _without_units(dims: Sequence[Sequence[Digit]]) -> Dims:
    return tuple(tuple(d for d in digits if d.extent != 1) for digits in dims)


def tiles(index_map: IndexMap) -> bool:
    """Every axis is covered once. Unlike in :meth:`IndexMap.make`, a symbolic axis may be cut by a number."""
    found: dict[int, list[Digit]] = {}
    for digits in index_map.dims:
        for digit in digits:
            found.setdefault(digit.axis, []).append(digit)
    for axis, extent in enumerate(index_map.shape):
        place: Extent = 1
        for digit in sorted(found.get(axis, ()), key=lambda d: d.stride):
            if digit.stride != place:
                return False
            if isinstance(digit.extent, str):  # the top digit
                place = extent if extent_over(extent, digit.stride) == digit.extent else digit.extent
            else:
                place = digit.stride * digit.extent
        if place != extent:
            return False
    return True
