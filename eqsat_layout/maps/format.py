"""Formats: how a value lies in memory.

In: the logical shape of a tensor, an index map over the padded shape, the padding's fill, a memory scope and the
grouping of the physical axes. Out: the physical shape and bytes, and the laying out of NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from eqsat_layout.cached_property import cached_property
from eqsat_layout.errors import LayoutError
from eqsat_layout.maps.fill import UNDEF, Fill, keep_exact
from eqsat_layout.maps.index_map import Digit, Extent, IndexMap, extent_product
from eqsat_layout.maps.key import read_key

GLOBAL: Final = "global"
"""The memory scope of an ordinary buffer."""


T = TypeVar("T")

Padding = tuple[tuple[int, int], ...]
"""Elements added before and after every logical axis."""


@dataclass(frozen=True)
class Format:
    """Index map, padding with its fill, memory scope. Build through :meth:`make`, which checks and canonicalises.

    ``separators`` are the positions between physical axes where a new group of axes starts: a buffer of n groups is
    addressed by n indices, as a texture is; a flat one has one group and no separators.
    """

    shape: tuple[Extent, ...]
    index_map: IndexMap
    padding: Padding
    fill: Fill = None
    scope: str = GLOBAL
    separators: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        keep_exact(self)

    @staticmethod
    def make(
        index_map: IndexMap,
        *,
        padding: Sequence[tuple[int, int]] = (),
        fill: Fill = None,
        scope: str = GLOBAL,
        separators: Sequence[int] = (),
    ) -> Format:
        """The format of a tensor whose *padded* shape is ``index_map.shape``."""
        if not padding and scope == GLOBAL and not separators:
            return _plain(index_map)
        padded = index_map.shape
        groups = _checked_separators(separators, index_map)
        if not padding:
            return Format(padded, index_map, ((0, 0),) * len(padded), None, scope, groups)
        pad = tuple((int(lo), int(hi)) for lo, hi in padding)
        if len(pad) != len(padded):
            raise LayoutError(f"padding of {len(pad)} axes given for shape {padded}")
        if not any(lo or hi for lo, hi in pad):
            return Format(padded, index_map, pad, None, scope, groups)
        if fill is None:
            raise LayoutError(f"padding {pad} needs a fill: a number, or UNDEF")
        shape: list[Extent] = []
        for extent, (lo, hi) in zip(padded, pad, strict=True):
            if (lo or hi) and isinstance(extent, str):
                raise LayoutError(f"a symbolic axis can't be padded: {extent} by ({lo}, {hi})")
            if lo < 0 or hi < 0 or (isinstance(extent, int) and extent < lo + hi):
                raise LayoutError(f"padding ({lo}, {hi}) does not fit an axis of {extent} padded elements")
            shape.append(extent - lo - hi if isinstance(extent, int) else extent)
        return Format(tuple(shape), index_map, pad, fill, scope, groups)

    @staticmethod
    def row_major(shape: Sequence[Extent], scope: str = GLOBAL) -> Format:
        """The format that Relax itself means."""
        return Format.make(IndexMap.identity(shape), scope=scope)

    @staticmethod
    def from_key(text: str) -> Format:
        """The format that has ``text`` as its :attr:`key`. Raises :class:`LayoutError` where the text says no format.

        Keys leave out the spaces of symbolic extents: they are put back as ``tir.extents`` writes them.
        """
        parts = read_key(text)
        scope = GLOBAL if parts.scope is None else parts.scope
        fill = None if parts.fill is None else _read_fill(parts.fill)
        return Format.make(parts.index_map, padding=parts.padding, fill=fill, scope=scope, separators=parts.separators)

    def __hash__(self) -> int:
        return hash(self.key)  # formats key most tables; their text is kept

    @property
    def padded_shape(self) -> tuple[Extent, ...]:
        """Logical extents with their padding."""
        return self.index_map.shape

    @property
    def physical_shape(self) -> tuple[Extent, ...]:
        """Extents of the buffer."""
        return self.index_map.result_shape

    @property
    def groups(self) -> tuple[Extent, ...]:
        """Extent of every group of physical axes: the shape of the buffer as memory addresses it."""
        return tuple(map(extent_product, self._grouped(self.physical_shape)))

    @property
    def is_padded(self) -> bool:
        """Some axis has padding."""
        return self.fill is not None

    @cached_property
    def is_row_major(self) -> bool:
        """Row-major, unpadded, in ordinary flat memory: a tensor as Relax has it."""
        return self.fill is None and self.scope == GLOBAL and not self.separators and self.index_map.is_identity

    @cached_property
    def stays_in_place(self) -> bool:
        """A tensor as Relax has it, but for axes that are cut where they stand."""
        return self.fill is None and self.scope == GLOBAL and not self.separators and self.index_map.splits_in_place

    def same_bytes(self, other: Format) -> bool:
        """A buffer of ``self`` is a buffer of ``other`` too, but for where axes of one group are cut.

        Formats with other separators are other storage: a flat buffer is not one of two indices. Only flat memory lets
        the axes of a group be cut in another way.
        """
        return (
            self.scope == other.scope
            and self.separators == other.separators
            and (self.scope == GLOBAL or self.physical_shape == other.physical_shape)
            and self.padding == other.padding
            and self.fill == other.fill
            and self.index_map.shape == other.index_map.shape
            and self._group_digits == other._group_digits
        )

    def serves_as(self, other: Format) -> bool:
        """A buffer of ``self`` will do where one of ``other`` is asked for: the same bytes, or padding forgotten."""
        return self.same_bytes(other) or (other.fill is UNDEF and self.with_fill(UNDEF).same_bytes(other))

    def with_fill(self, fill: Fill) -> Format:
        """The format with another fill of its padding; itself where it has none."""
        if not self.is_padded or fill is self.fill:
            return self
        return Format(self.shape, self.index_map, self.padding, fill, self.scope, self.separators)

    def elements(self, symbol_size: int = 64) -> int:
        """Elements in the buffer; a symbolic extent counts as ``symbol_size``."""
        known, symbols = self._size
        return known * int(symbol_size**symbols)

    @cached_property
    def _size(self) -> tuple[int, int]:
        """The product of the padded extents that are known, and how many are not."""
        known = [e for e in self.padded_shape if isinstance(e, int)]
        return math.prod(known), len(self.padded_shape) - len(known)

    def lay(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The buffer that holds ``array`` (of ``shape``); undef padding becomes NaN, or -1 for integers."""
        if self.is_padded:
            fill: Any = self.fill
            if self.fill is UNDEF:
                fill = np.nan if array.dtype.kind == "f" else array.dtype.type(-1) if array.dtype.kind == "i" else 1
            array = np.pad(array, self.padding, constant_values=fill)
        return self.index_map.apply(array)

    def unlay(self, buffer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The value that ``buffer`` (of ``physical_shape``) holds."""
        inverse = self.index_map.inverse()
        assert inverse is not None, "concrete shapes always invert"
        padded = inverse.apply(buffer)
        return padded[tuple(slice(lo, lo + int(n)) for (lo, _), n in zip(self.padding, self.shape, strict=True))]

    @cached_property
    def key(self) -> str:
        """Text that identifies the format: the map's, then ``+lo:hi_..=fill`` and ``@scope`` where there are any.

        A new group of axes starts with ``|`` where the map has ``.``: ``1x32x8x8>a.b/4.c|d.b%4``.
        """
        text = self.index_map.key
        if self.separators:
            shape, arrow, dims = text.rpartition(">")
            text = shape + arrow + "|".join(".".join(group) for group in self._grouped(dims.split(".")))
        if self.is_padded:
            fill = "?" if self.fill is UNDEF else repr(self.fill)
            text += "+" + "_".join(f"{lo}:{hi}" for lo, hi in self.padding) + "=" + fill
        return text if self.scope == GLOBAL else f"{text}@{self.scope}"

    def __str__(self) -> str:
        text = str(self.index_map)
        if self.separators:
            terms = " | ".join(", ".join(group) for group in self._grouped(self.index_map.terms))
            text = f"({', '.join(self.index_map.index_names)}) -> ({terms})"
        if self.is_padded:
            pads = ", ".join(f"{lo}:{hi}" for lo, hi in self.padding)
            text += f" padded ({pads}) with {'undef' if self.fill is UNDEF else self.fill}"
        return text if self.scope == GLOBAL else f"{text} in {self.scope}"

    def _grouped(self, per_axis: Sequence[T]) -> list[Sequence[T]]:
        """What is known of every physical axis, by group."""
        bounds = (0, *self.separators, len(per_axis))
        return [per_axis[low:high] for low, high in pairwise(bounds)]

    @cached_property
    def _group_digits(self) -> tuple[tuple[Digit, ...], ...]:
        """The digits of every group in memory order."""
        if not self.separators:
            return (self.index_map.flat_digits,)
        shape = self.index_map.shape
        return tuple(IndexMap(shape, tuple(group)).flat_digits for group in self._grouped(self.index_map.dims))


def _plain(index_map: IndexMap) -> Format:
    """In flat memory and without padding: one for each map, since every flow asks for those of all buffers."""
    found: Format | None = index_map.derived.get("format")
    if found is None:
        shape = index_map.shape
        found = index_map.derived["format"] = Format(shape, index_map, ((0, 0),) * len(shape))
    return found


Formats = Sequence[Format | None]
"""Of an op's operands or results; ``None``: of what is no tensor."""


def _checked_separators(separators: Sequence[int], index_map: IndexMap) -> tuple[int, ...]:
    if not separators:
        return ()
    found = tuple(int(position) for position in separators)
    rank = len(index_map.dims)
    if any(low >= high for low, high in pairwise((0, *found, rank))):
        raise LayoutError(
            f"separators {found} of {rank} physical axes must be strictly increasing and within 1..{rank - 1}"
        )
    return found


def _read_fill(text: str) -> Fill:
    """The fill that a key writes so."""
    if text == "?":
        return UNDEF
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError as error:
        raise LayoutError(f"the fill {text!r} of a key is no number") from error
