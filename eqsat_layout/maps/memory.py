"""Memories: which buffers a memory scope of a target holds, and how it addresses them.

In: a format and the type of its elements. Out: the format in that memory, its axes grouped as the memory addresses
them, or why it holds no such buffer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final

from eqsat_layout.maps.format import GLOBAL, Format
from eqsat_layout.maps.index_map import Extent, extent_product

_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Memory:
    """One kind of memory: ``scope`` is TVM's name for it.

    ``axis_groups``: how many indices address a buffer; 1 where memory is flat. ``largest``: the largest extent of each
    group, the last one for all groups after it; ``()``: no limit. ``cuts``: where groups end, as positions in the
    physical shape, negative ones from its end; ``None``: wherever all groups fit. ``texel_bits``: what the innermost
    axis may have in all; ``()``: anything. ``dtypes``: of elements; ``()``: any.
    """

    scope: str = GLOBAL
    axis_groups: int = 1
    largest: tuple[int, ...] = ()
    cuts: tuple[int, ...] | None = None
    texel_bits: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()

    @property
    def is_flat(self) -> bool:
        """One index addresses all."""
        return self.axis_groups == 1

    def placed(self, fmt: Format, dtype: str) -> Format | None:
        """``fmt``, in whatever memory it is, in this one; ``None`` where it does not hold such a buffer."""
        found = self.grouped(fmt)
        return found if found is not None and self.why_not(found, dtype) is None else None

    def grouped(self, fmt: Format) -> Format | None:
        """``fmt`` in this memory, whether it holds such a buffer or not; ``None`` where there are no groups for it.

        A buffer in flat memory has no groups; elsewhere axes are grouped by :attr:`cuts`.
        """
        separators = self.separators(fmt.physical_shape)
        return None if separators is None else replace(fmt, scope=self.scope, separators=separators)

    def separators(self, shape: Sequence[Extent]) -> tuple[int, ...] | None:
        """Where groups of a physical shape start; ``None`` where there are none that fit."""
        if self.is_flat:
            return ()
        if self.cuts is not None:
            if len(shape) < self.axis_groups:
                return None
            return tuple(sorted({cut % len(shape) for cut in self.cuts}))
        for count in range(self.axis_groups):
            for found in combinations(range(1, len(shape)), count):
                if self._fits(_groups(shape, found)):
                    return found
        return None

    def why_not(self, fmt: Format, dtype: str) -> str | None:
        """Why it holds no buffer in ``fmt``, in words; ``None`` if it does."""
        if self.dtypes and dtype not in self.dtypes:
            return f"it holds no elements of {dtype}"
        groups = len(fmt.separators) + 1
        if groups > self.axis_groups:
            return f"{fmt} has {groups} groups of physical axes, but it holds {self.axis_groups}"
        if self.largest and not self._fits(fmt.groups):
            return f"{fmt} has groups of {_text(fmt.groups)} elements, but it holds {_text(self.largest)}"
        return self.why_no_texel(fmt, dtype)

    def why_no_texel(self, fmt: Format, dtype: str) -> str | None:
        """Why the innermost axis makes no texels, in words; ``None`` if it does, or none are asked for."""
        bits, inner = element_bits(dtype), (1, *fmt.physical_shape)[-1]
        if not self.texel_bits or (isinstance(inner, int) and inner * bits in self.texel_bits):
            return None
        sizes = " or ".join(map(str, self.texel_bits))
        return f"its innermost axis must be {sizes} bits long, and that of {fmt} has {inner} elements of {bits}"

    def suits(self, fmt: Format) -> bool:
        """Whether it is worth proposing for a buffer in ``fmt`` that may lie anywhere; else it is only where asked for.

        Memories that hold the same buffers at the same speed would else all be tried.
        """
        return True

    def _fits(self, groups: Sequence[Extent]) -> bool:
        """A symbolic extent fits where nothing is limited."""
        if not self.largest:
            return True
        limits = [*self.largest, *[self.largest[-1]] * len(groups)]
        return all(isinstance(extent, int) and extent <= most for extent, most in zip(groups, limits, strict=False))


@lru_cache(256)
def element_bits(dtype: str) -> int:
    """Bits of one element as it lies in memory: of ``float32`` 32, of ``bool`` 8."""
    digits = _NUMBER.search(dtype)
    return 8 if dtype == "bool" else int(digits[0]) if digits else 32


def _groups(shape: Sequence[Extent], separators: Sequence[int]) -> list[Extent]:
    bounds = [0, *separators, len(shape)]
    return [extent_product(shape[low:high]) for low, high in pairwise(bounds)]


def _text(extents: Sequence[Extent]) -> str:
    return " x ".join(map(str, extents))
