"""What a kernel moves: through the L1 cache, and from beyond it, as images and as buffers.

In: an op, the formats of its operands and results, a profile. Out: :class:`Traffic` in bytes. Each work item computes a
tile of the result in registers; what neighbours of its work group read too is read once where the L1 cache keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eqsat_layout.cost.model import RESULT, dtype_bytes
from eqsat_layout.graph.graph import Signature
from eqsat_layout.maps import GLOBAL, Format, Formats
from eqsat_layout.targets.opencl.loads import Loads
from eqsat_layout.targets.opencl.profiles import Profile

_GROUP: Final = 8
"""Work items along each of the two axes of a work group, which share an L1 cache (assumed)."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one kernel. ``loads_of_images``, ``loads_of_buffers``: what work items ask for. ``images``, ``buffers``:
    what comes from beyond the L1 cache, and what is written. ``memory``: each byte that is touched, once."""

    loads_of_images: float = 0.0
    loads_of_buffers: float = 0.0
    images: float = 0.0
    buffers: float = 0.0
    memory: float = 0.0

    @property
    def beyond(self) -> float:
        """Bytes that come from beyond the L1 cache, or are written."""
        return self.images + self.buffers

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.loads_of_images + other.loads_of_images,
            self.loads_of_buffers + other.loads_of_buffers,
            self.images + other.images,
            self.buffers + other.buffers,
            self.memory + other.memory,
        )


def traffic_of(
    op: Signature, operands: Formats, results: Formats, profile: Profile, fused: frozenset[int] = frozenset()
) -> Traffic:
    """The traffic of one run; operands and results that are ``fused`` stay in registers."""
    total = Traffic()
    loads_of = None if op.computation is None else Loads(op.computation, results)
    for i, (tensor, fmt) in enumerate(zip(op.operands, operands, strict=True)):
        if tensor is not None and fmt is not None and i not in fused:
            size = dtype_bytes(tensor.dtype)
            loads = fmt.elements() * size
            touched = loads
            if op.computation is not None and loads_of is not None:
                loads = loads_of.of_buffer(op.computation.operands[i]) * size
                touched = min(touched, loads)
            total += _read(fmt, loads, touched, profile)
    for tensor, fmt in zip(op.results, results, strict=True):
        if tensor is not None and fmt is not None and RESULT not in fused:
            total += _written(fmt, fmt.elements() * dtype_bytes(tensor.dtype))
    return total


def traffic_of_copy(source: Format, target: Format, element_bytes: float, profile: Profile) -> Traffic:
    """The traffic of a kernel that copies a tensor from one format to another."""
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
