"""Implementations of contractions on a GPU: channels last, or in blocks that one copy of 16 bytes moves.

In: a computation. Out: :class:`Candidate` by candidate, the layouts of :mod:`eqsat_layout.implementations.layouts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eqsat_layout.implementations.layouts import Blocking, Candidate, layout_candidates
from eqsat_layout.maps import element_bits
from eqsat_layout.tir.computation import Computation

_BLOCKING: Final = {
    bits: Blocking((128 // bits,), roomy=128 // bits, moved=tuple(size // bits for size in (32, 64, 128)))
    for bits in (8, 16, 32)
}
"""By the bits of an element; axes that no block divides are padded, as those of the first layer."""


def candidates(computation: Computation) -> Sequence[Candidate]:
    """``()`` for what is no contraction, or has elements of other sizes."""
    sizes = {element_bits(computation.buffers[number].dtype) for number in computation.operands}
    blocking = _BLOCKING.get(min(sizes, default=0))
    return () if blocking is None else layout_candidates(computation, blocking)
