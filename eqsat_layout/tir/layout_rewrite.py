"""A layout rewrite as data: what turns a buffer in one format into a buffer of the same value in another.

In: index maps, a crop and a pad. Out: :class:`LayoutRewrite`, in the one order that covers them all: unpack, crop, pad,
pack. Packing alone, ``map o pad`` and ``crop o inverse map`` are cases of it, and so is every way between two formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, UNDEF, Extent, Fill, Format, IndexMap, Padding, keep_exact


@dataclass(frozen=True)
class Place:
    """A memory scope, and where groups of physical axes start in it."""

    scope: str = GLOBAL
    separators: tuple[int, ...] = ()

    @staticmethod
    def of(fmt: Format) -> Place:
        """Where buffers in ``fmt`` lie."""
        return Place(fmt.scope, fmt.separators)


FLAT_PLACE: Final = Place()


@dataclass(frozen=True)
class LayoutRewrite:
    """``pack o pad o crop o unpack``; any part may be trivial. Build through :meth:`make`, which checks.

    ``crop`` and ``pad`` are (before, after) per axis of ``unpack``'s result, the logical tensor. ``fill`` is what the
    padding holds: a number, ``UNDEF`` for any value, ``None`` without padding. Without a crop and a pad the whole map
    is in ``pack`` (where the two maps compose), so that ``==`` compares bijections. ``source`` and ``target`` are the
    memories of the two buffers.
    """

    unpack: IndexMap
    crop: Padding
    pad: Padding
    fill: Fill
    pack: IndexMap
    source: Place = FLAT_PLACE
    target: Place = FLAT_PLACE

    def __post_init__(self) -> None:
        keep_exact(self)

    @staticmethod
    def make(
        unpack: IndexMap,
        *,
        crop: Sequence[tuple[int, int]] = (),
        pad: Sequence[tuple[int, int]] = (),
        fill: Fill = None,
        pack: IndexMap | None = None,
    ) -> LayoutRewrite:
        """The rewrite of these parts. :class:`LayoutError` where they don't fit one another."""
        shape = unpack.result_shape
        cropped = _border(crop, shape, "crop")
        padded = _border(pad, shape, "pad")
        for extent, low, high in zip(shape, cropped, padded, strict=True):
            if isinstance(extent, str) and (any(low) or any(high)):
                raise LayoutError(f"a symbolic axis can't be cropped or padded: {extent}")
            if isinstance(extent, int) and any(low) and sum(low) >= extent:
                raise LayoutError(f"crop {low} leaves nothing of an axis of {extent}")
        is_padded = any(map(any, padded))
        if is_padded and fill is None:
            raise LayoutError(f"padding {padded} needs a fill: a number, or UNDEF")
        last = pack if pack is not None else IndexMap.identity(_resized(shape, cropped, padded))
        if last.shape != _resized(shape, cropped, padded):
            raise LayoutError(f"{last} does not take what cropping {cropped} and padding {padded} make of {shape}")
        if not is_padded and not any(map(any, cropped)):
            whole = last.after(unpack)
            if whole is not None:
                none = ((0, 0),) * len(unpack.shape)
                return LayoutRewrite(IndexMap.identity(unpack.shape), none, none, None, whole)
        order = _source_order(unpack)
        in_order = IndexMap.permutation([last.shape[axis] for axis in order], _inverted(order))
        packing = last.after(in_order)
        if packing is not None:
            unpack = IndexMap(unpack.shape, tuple(unpack.dims[axis] for axis in order))
            cropped, padded = tuple(cropped[axis] for axis in order), tuple(padded[axis] for axis in order)
            last = packing
        return LayoutRewrite(unpack, cropped, padded, fill if is_padded else None, last)

    @staticmethod
    def of_map(index_map: IndexMap) -> LayoutRewrite:
        """A bijective map."""
        return LayoutRewrite.make(IndexMap.identity(index_map.shape), pack=index_map)

    @staticmethod
    def between(before: Format, after: Format) -> LayoutRewrite | None:
        """From a buffer in ``before`` to one in ``after`` of the same tensor; None if ``before`` can't be unpacked."""
        unpack = before.index_map.inverse()
        if unpack is None:
            return None
        if before.padding == after.padding and after.fill in (before.fill, UNDEF):
            made = LayoutRewrite.make(unpack, pack=after.index_map)
        else:
            pack = after.index_map
            made = LayoutRewrite.make(unpack, crop=before.padding, pad=after.padding, fill=after.fill, pack=pack)
        return replace(made, source=Place.of(before), target=Place.of(after))

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Shape of the source."""
        return self.unpack.shape

    @property
    def result_shape(self) -> tuple[Extent, ...]:
        """Shape of the result."""
        return self.pack.result_shape

    @property
    def is_padding(self) -> bool:
        """It writes padding."""
        return any(map(any, self.pad))

    @property
    def is_cropping(self) -> bool:
        """It drops elements."""
        return any(map(any, self.crop))

    @property
    def is_flat(self) -> bool:
        """Both buffers lie in flat global memory: Relax ops can say the rewrite."""
        return self.source == self.target == FLAT_PLACE

    @property
    def index_map(self) -> IndexMap | None:
        """The map if the rewrite is a bijection."""
        return None if self.is_padding or self.is_cropping else self.pack.after(self.unpack)

    @property
    def is_identity(self) -> bool:
        """Nothing is rewritten."""
        return self.source == self.target and self.index_map is not None and self.index_map.is_identity

    def apply(self, array: npt.NDArray[Any], undef: float = 0.0) -> npt.NDArray[Any]:
        """The result for ``array``; padding of any value becomes ``undef``."""
        unpacked = self.unpack.apply(array)
        inside = unpacked[tuple(slice(lo, n - hi) for (lo, hi), n in zip(self.crop, unpacked.shape, strict=True))]
        fill: Any = undef if self.fill is UNDEF else self.fill
        padded = np.pad(inside, self.pad, constant_values=fill) if self.is_padding else inside
        return self.pack.apply(np.ascontiguousarray(padded))

    def __str__(self) -> str:
        parts = [] if self.unpack.is_identity else [str(self.unpack)]
        parts += [f"crop {self.crop}"] if self.is_cropping else []
        parts += [f"pad {self.pad} with {self.fill!r}"] if self.is_padding else []
        parts += [] if self.pack.is_identity and parts else [str(self.pack)]
        return ", ".join(parts)


def _source_order(unpack: IndexMap) -> list[int]:
    """The axes of ``unpack``'s result in the order of their leading digits; unit axes where the source has such."""
    units = iter([axis for axis, extent in enumerate(unpack.shape) if extent == 1])
    keys = {}
    for position, row in enumerate(unpack.dims):
        axis, stride = (row[0].axis, row[0].stride) if row else (next(units, len(unpack.shape)), 1)
        keys[position] = (axis, -stride, position)
    return sorted(keys, key=lambda position: keys[position])


def _inverted(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


def _border(given: Sequence[tuple[int, int]], shape: Sequence[Extent], what: str) -> Padding:
    border = tuple((int(lo), int(hi)) for lo, hi in given) or ((0, 0),) * len(shape)
    if len(border) != len(shape) or any(lo < 0 or hi < 0 for lo, hi in border):
        raise LayoutError(f"{what} {border} does not fit a tensor of shape {tuple(shape)}")
    return border


def _resized(shape: Sequence[Extent], crop: Padding, pad: Padding) -> tuple[Extent, ...]:
    return tuple(
        extent - sum(c) + sum(p) if isinstance(extent, int) else extent
        for extent, c, p in zip(shape, crop, pad, strict=True)
    )
