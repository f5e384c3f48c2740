"""Pads and crops among computations.

In: a :class:`Computation`. Out: :class:`Pad` where the result is the operand with a border of one number around it,
:class:`Crop` where it is the inside of the operand; read off the indices and the condition, whatever op it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_layout.maps import IndexMap, Padding
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.copy_block import read_copy
from eqsat_layout.tir.layout_rewrite import LayoutRewrite


@dataclass(frozen=True)
class Pad:
    """``lo`` and ``hi`` elements of ``value`` are added before and behind every axis of the operand.

    ``index_map`` is what happens to the padded tensor then: the identity unless layout digits are mixed in.
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    value: float
    index_map: IndexMap

    @property
    def padding(self) -> Padding:
        """(before, behind) per axis, as a format has it."""
        return tuple(zip(self.lo, self.hi, strict=True))


@dataclass(frozen=True)
class Crop:
    """``lo`` and ``hi`` elements are taken off every axis of what ``index_map`` makes of the operand."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    index_map: IndexMap

    @property
    def padding(self) -> Padding:
        """(before, behind) per axis, as a format has it."""
        return tuple(zip(self.lo, self.hi, strict=True))


def pad_of(computation: Computation) -> Pad | None:
    """The pad that the computation is; ``None`` if it is none, or the border is not one number."""
    rewrite = _rewrite_of(computation)
    if rewrite is None or any(map(any, rewrite.crop)) or not any(map(any, rewrite.pad)):
        return None
    if not rewrite.unpack.is_identity or not isinstance(rewrite.fill, int | float):
        return None
    lo, hi = zip(*rewrite.pad, strict=True)
    return Pad(lo, hi, rewrite.fill, rewrite.pack)


def crop_of(computation: Computation) -> Crop | None:
    """The crop that the computation is, of unit stride; ``None`` if it is none."""
    rewrite = _rewrite_of(computation)
    if rewrite is None or any(map(any, rewrite.pad)) or not any(map(any, rewrite.crop)):
        return None
    if not rewrite.pack.is_identity:
        return None
    lo, hi = zip(*rewrite.crop, strict=True)
    return Crop(lo, hi, rewrite.unpack)


def _rewrite_of(computation: Computation) -> LayoutRewrite | None:
    """What a computation of one block does to its one operand, if it only copies."""
    if len(computation.operands) != 1 or len(computation.results) != 1 or len(computation.blocks) != 1:
        return None
    copy = read_copy(computation, computation.blocks[0])
    return None if copy is None else copy[2]
