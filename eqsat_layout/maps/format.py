"""Formats: how a value lies in memory. An index map over the padded shape, the padding's fill, and a memory scope.

In: the logical shape of a tensor. Out: the physical shape and bytes, and the laying out of NumPy arrays.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps.index_map import Extent, IndexMap

GLOBAL: Final = "global"
"""The memory scope of an ordinary buffer."""


class _Undef(enum.Enum):
    UNDEF = "?"

    def __repr__(self) -> str:
        return "?"


UNDEF: Final = _Undef.UNDEF
"""The fill of padding that nothing may rely on."""

Fill = float | _Undef | None
"""What padding holds: a number, :data:`UNDEF`, or ``None`` where there is no padding."""

Padding = tuple[tuple[int, int], ...]
"""Elements added before and after every logical axis."""


@dataclass(frozen=True)
class Format:
    """Index map, padding with its fill, memory scope. Build through :meth:`make`, which checks and canonicalises."""

    shape: tuple[Extent, ...]
    index_map: IndexMap
    padding: Padding
    fill: Fill = None
    scope: str = GLOBAL

    @staticmethod
    def make(
        index_map: IndexMap, *, padding: Sequence[tuple[int, int]] = (), fill: Fill = None, scope: str = GLOBAL
    ) -> Format:
        """The format of a tensor whose *padded* shape is ``index_map.shape``."""
        padded = index_map.shape
        pad = tuple((int(lo), int(hi)) for lo, hi in padding) or ((0, 0),) * len(padded)
        if len(pad) != len(padded):
            raise LayoutError(f"padding of {len(pad)} axes given for shape {padded}")
        if not any(lo or hi for lo, hi in pad):
            return Format(padded, index_map, pad, None, scope)
        if fill is None:
            raise LayoutError(f"padding {pad} needs a fill: a number, or UNDEF")
        shape: list[Extent] = []
        for extent, (lo, hi) in zip(padded, pad, strict=True):
            if (lo or hi) and isinstance(extent, str):
                raise LayoutError(f"a symbolic axis can't be padded: {extent} by ({lo}, {hi})")
            if lo < 0 or hi < 0 or (isinstance(extent, int) and extent < lo + hi):
                raise LayoutError(f"padding ({lo}, {hi}) does not fit an axis of {extent} padded elements")
            shape.append(extent - lo - hi if isinstance(extent, int) else extent)
        return Format(tuple(shape), index_map, pad, fill, scope)

    @staticmethod
    def row_major(shape: Sequence[Extent], scope: str = GLOBAL) -> Format:
        """The format that Relax itself means."""
        return Format.make(IndexMap.identity(shape), scope=scope)

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
    def is_padded(self) -> bool:
        """Some axis has padding."""
        return self.fill is not None

    @cached_property
    def is_row_major(self) -> bool:
        """Row-major, unpadded, in ordinary memory: a tensor as Relax has it."""
        return self.fill is None and self.scope == GLOBAL and self.index_map.is_identity

    def same_bytes(self, other: Format) -> bool:
        """A buffer of ``self`` is a buffer of ``other`` too, but for the grouping of its axes."""
        return (
            self.scope == other.scope
            and self.padding == other.padding
            and self.fill == other.fill
            and self.index_map.shape == other.index_map.shape
            and self.index_map.flat_digits == other.index_map.flat_digits
        )

    def serves_as(self, other: Format) -> bool:
        """A buffer of ``self`` will do where one of ``other`` is asked for: the same bytes, or padding forgotten."""
        return self.same_bytes(other) or (other.fill is UNDEF and self.with_fill(UNDEF).same_bytes(other))

    def with_fill(self, fill: Fill) -> Format:
        """The format with another fill of its padding; itself where it has none."""
        return replace(self, fill=fill) if self.is_padded else self

    def elements(self, symbol_size: int = 64) -> int:
        """Elements in the buffer; a symbolic extent counts as ``symbol_size``."""
        return math.prod(e if isinstance(e, int) else symbol_size for e in self.padded_shape)

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
        """Text that identifies the format: the map's, then ``+lo:hi_..=fill`` and ``@scope`` where there are any."""
        text = self.index_map.key
        if self.is_padded:
            fill = "?" if self.fill is UNDEF else repr(self.fill)
            text += "+" + "_".join(f"{lo}:{hi}" for lo, hi in self.padding) + "=" + fill
        return text if self.scope == GLOBAL else f"{text}@{self.scope}"

    def __str__(self) -> str:
        text = str(self.index_map)
        if self.is_padded:
            pads = ", ".join(f"{lo}:{hi}" for lo, hi in self.padding)
            text += f" padded ({pads}) with {'undef' if self.fill is UNDEF else self.fill}"
        return text if self.scope == GLOBAL else f"{text} in {self.scope}"
