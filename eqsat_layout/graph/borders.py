"""Pads and crops as ops of the graph, taken out of the layout rewrites that they come in.

In: layout rewrites. Out: their parts, in order: bijective views as index maps, pads and crops as :class:`Border`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import UNDEF, Extent, IndexMap, Padding, keep_exact
from eqsat_layout.tir.layout_rewrite import LayoutRewrite


@dataclass(frozen=True)
class Border:
    """A border of ``widths`` (before, after) per axis: added, holding ``fill``, or where that is None taken away.

    ``shape`` is that of the tensor without the border.
    """

    shape: tuple[Extent, ...]
    widths: Padding
    fill: float | None

    def __post_init__(self) -> None:
        keep_exact(self)

    @property
    def wide_shape(self) -> tuple[Extent, ...]:
        """The shape with the border."""
        return tuple(e + sum(w) if isinstance(e, int) else e for e, w in zip(self.shape, self.widths, strict=True))

    @property
    def result_shape(self) -> tuple[Extent, ...]:
        """The shape that it gives."""
        return self.shape if self.fill is None else self.wide_shape

    @property
    def operand_shape(self) -> tuple[Extent, ...]:
        """The shape that it takes."""
        return self.wide_shape if self.fill is None else self.shape

    @property
    def key(self) -> str:
        """Text that identifies it."""
        kind = "crop" if self.fill is None else "pad"
        widths = "_".join(f"{lo}:{hi}" for lo, hi in self.widths)
        return f"{kind}:{'x'.join(map(str, self.shape))}+{widths}" + ("" if self.fill is None else f"={self.fill!r}")

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The tensor with the border added or taken away."""
        if array.shape != self.operand_shape:
            raise LayoutError(f"array of shape {array.shape} given to a border of one of shape {self.operand_shape}")
        return self.apply_to_each(array)

    def apply_to_each(self, arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same for every tensor along the axes in front."""
        if self.fill is not None:
            return with_border(arrays, self.widths, self.fill)
        inside: npt.NDArray[Any] = arrays[_inside(self.widths, arrays.shape)]
        return inside


def with_border(arrays: npt.NDArray[Any], widths: Padding, fill: Any) -> npt.NDArray[Any]:
    """Arrays with a border around their last axes: ``np.pad`` takes ten times as long for small ones."""
    front = len(arrays.shape) - len(widths)
    wide = [e + lo + hi for e, (lo, hi) in zip(arrays.shape[front:], widths, strict=True)]
    made = np.full((*arrays.shape[:front], *wide), fill, arrays.dtype)
    made[_inside(widths, made.shape)] = arrays
    return made


def _inside(widths: Padding, shape: tuple[int, ...]) -> Any:
    extents = shape[len(shape) - len(widths) :]
    return (..., *(slice(lo, extent - hi) for (lo, hi), extent in zip(widths, extents, strict=True)))


Part = IndexMap | Border


def parts_of(rewrites: Iterable[LayoutRewrite]) -> tuple[Part, ...]:
    """What the rewrites do, one simple thing after the other. Padding of any value is padded with 0, as TVM does."""
    parts: list[Part] = []
    for rewrite in rewrites:
        unpacked = rewrite.unpack.result_shape
        inner = tuple(e - sum(w) if isinstance(e, int) else e for e, w in zip(unpacked, rewrite.crop, strict=True))
        parts += [] if rewrite.unpack.is_identity else [rewrite.unpack]
        parts += [Border(inner, rewrite.crop, None)] if rewrite.is_cropping else []
        if rewrite.is_padding:
            fill = 0.0 if rewrite.fill is UNDEF or rewrite.fill is None else float(rewrite.fill)
            parts.append(Border(inner, rewrite.pad, fill))
        parts += [] if rewrite.pack.is_identity else [rewrite.pack]
    return tuple(parts)
