"""Zero padding that costs nothing: the sampler gives 0 beyond the edge of an image.

In: a computation and the formats of its operands. Out: whether its kernel has to ask itself what is inside.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat_layout.maps import GLOBAL, Format, Formats
from eqsat_layout.targets.opencl.images import first_column
from eqsat_layout.targets.opencl.profiles import Profile
from eqsat_layout.tir.affine import Affine
from eqsat_layout.tir.computation import Access, Block, Computation
from eqsat_layout.tir.fills import evaluate_fill


def has_guards(computation: Computation, operands: Formats, profile: Profile) -> bool:
    """Some operand is read under a condition that the sampler does not take over."""
    formats = dict(zip(computation.operands, operands, strict=True))
    for block, access in _guarded_reads(computation):
        fmt = formats.get(access.buffer)
        if fmt is None or not is_free(block, access, fmt, profile):
            return True
    return False


def is_padded(computation: Computation) -> bool:
    """Some operand is read with zeros around it."""
    return any(pads_with_zero(block) for block, _ in _guarded_reads(computation))


def is_free(block: Block, access: Access, fmt: Format, profile: Profile) -> bool:
    """The padding of ``access`` is 0, and lies beyond the edges of rows and columns that have no other axis in them."""
    if not profile.pads_for_free or fmt.scope == GLOBAL or not pads_with_zero(block):
        return False
    rank = len(fmt.physical_shape)
    column = first_column(fmt.scope, rank)
    alone = {column - 1}
    if sum(e != 1 for e in fmt.physical_shape[column:-1]) == 1:
        alone |= set(range(column, rank - 1))
    return all(_axis_alone(fmt, axis, alone) for axis in _shifted(block, access))


def pads_with_zero(block: Block) -> bool:
    """Its only value is what it reads where that is, and 0 elsewhere."""
    values = [v for store in block.stores for v in store.value.walk() if v.op in ("prim.if_then_else", "Select")]
    if len(values) != 1 or len(values[0].args) != 3:
        return False
    inside, outside = values[0].args[1:]
    return inside.op == "load" and evaluate_fill(outside, {}, ()) == 0.0


def _guarded_reads(computation: Computation) -> Iterator[tuple[Block, Access]]:
    for block in computation.blocks:
        if block.is_guarded:
            yield from ((block, access) for access in block.reads if access.buffer in computation.operands)


def _shifted(block: Block, access: Access) -> Iterator[int]:
    """The axes of the operand along which a read may go beyond its ends."""
    for axis, index in enumerate(access.indices):
        if not isinstance(index, Affine) or index.constant or len(index.terms) > 1:
            yield axis


def _axis_alone(fmt: Format, axis: int, alone: set[int]) -> bool:
    """Logical ``axis`` is one physical axis as it stands, and that is among ``alone``."""
    places = [i for i, digits in enumerate(fmt.index_map.dims) if any(d.axis == axis for d in digits)]
    return not places or (len(places) == 1 and len(fmt.index_map.dims[places[0]]) == 1 and places[0] in alone)
