"""What a kernel moves: through the first cache, and from beyond it, as images and as buffers.

In: an op, the formats of its operands and results, a profile. Out: :class:`Traffic` in bytes. Each work item computes a
tile of the result in registers; what neighbours of its work group read too is read once where the first cache keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import RESULT, dtype_bytes
from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import GLOBAL, Format
from eqsat_layout.targets.opencl.profiles import Profile
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation

_TILE: Final = 4
"""Elements of the result along each of two axes that a work item has in registers (assumed)."""

_GROUP: Final = 8
"""Work items along each of the two axes of a work group, which share a first cache (assumed)."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one kernel. ``loads_of_images``, ``loads_of_buffers``: what work items ask for. ``images``, ``buffers``:
    what comes from beyond the first cache, and what is written. ``memory``: each byte that is touched, once."""

    loads_of_images: float = 0.0
    loads_of_buffers: float = 0.0
    images: float = 0.0
    buffers: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.loads_of_images + other.loads_of_images,
            self.loads_of_buffers + other.loads_of_buffers,
            self.images + other.images,
            self.buffers + other.buffers,
            self.memory + other.memory,
        )


def traffic_of(
    op: Signature,
    operands: Sequence[Format | None],
    results: Sequence[Format | None],
    profile: Profile,
    fused: frozenset[int] = frozenset(),
) -> Traffic:
    """Of one run; operands and results that are ``fused`` stay in registers."""
    total = Traffic()
    for i, (tensor, fmt) in enumerate(zip(op.operands, operands, strict=True)):
        if tensor is not None and fmt is not None and i not in fused:
            size = dtype_bytes(tensor.dtype)
            loads = fmt.elements() * size
            touched = loads
            if op.computation is not None:
                loads = _loads(op.computation, op.computation.operands[i]) * size
                touched = min(touched, loads)
            total += _read(fmt, loads, touched, profile)
    for tensor, fmt in zip(op.results, results, strict=True):
        if tensor is not None and fmt is not None and RESULT not in fused:
            total += _written(fmt, fmt.elements() * dtype_bytes(tensor.dtype))
    return total


def traffic_of_copy(source: Format, target: Format, element_bytes: float, profile: Profile) -> Traffic:
    """Of a kernel that copies a tensor from one format to another."""
    before = source.elements() * element_bytes
    return _read(source, before, before, profile) + _written(target, target.elements() * element_bytes)


def _read(fmt: Format, loads: float, touched: float, profile: Profile) -> Traffic:
    is_image = fmt.scope != GLOBAL
    is_kept = profile.images_in_l1 if is_image else profile.buffers_in_l1
    beyond = max(touched, loads / _GROUP) if is_kept else loads
    if is_image:
        return Traffic(loads_of_images=loads, images=beyond, memory=touched)
    return Traffic(loads_of_buffers=loads, buffers=beyond, memory=touched)


def _written(fmt: Format, size: float) -> Traffic:
    return Traffic(buffers=size, memory=size) if fmt.scope == GLOBAL else Traffic(images=size, memory=size)


def _loads(computation: Computation, number: int) -> float:
    """Elements of a buffer that the work items of all blocks load; blocks that only prepare it are inlined."""
    total = 0.0
    for block in computation.blocks:
        for access in block.reads:
            if access.buffer != number:
                continue
            passed_on = _passed_on(computation, block)
            total += block.iterations / _reuse(block, access) if passed_on is None else _loads(computation, passed_on)
    return total


def _passed_on(computation: Computation, block: Block) -> int | None:
    """The internal buffer that a block without a reduction writes: its readers compute that themselves."""
    if len(block.stores) != 1 or block.inits or not all(map(block.is_spatial, range(len(block.iters)))):
        return None
    written = block.writes[0].buffer
    is_read = any(r.buffer == written for other in computation.blocks if other is not block for r in other.reads)
    return written if written in computation.internal and is_read else None


def _reuse(block: Block, access: Access) -> int:
    """How many elements of its tile a work item computes with what it loads once."""
    used = {i for index in access.indices for i in index.iters}
    reuse = 1
    for variable in _tile_axes(block):
        extent = block.extents[variable]
        if variable not in used:
            reuse *= min(_TILE, extent) if isinstance(extent, int) else _TILE
    return reuse


def _tile_axes(block: Block) -> list[int]:
    """The two longest axes of the result: one has the lanes, the other is unrolled."""
    axes = [block.variable(index) for index in block.writes[0].indices if isinstance(index, Affine)]
    known = [v for v in axes if v is not None and block.extents[v] != 1]
    return sorted(known, key=lambda v: -_size(block.extents[v]))[:2]


def _size(extent: object) -> int:
    return extent if isinstance(extent, int) else 1 << 30
