"""Data of which windows are read, as an image in which the rows of a tile are neighbours.

In: the axes of the window and of its places. Out: where the pixels are, and which rows are results: there is one for
every pixel of the image, and those near the end of a line, whose window goes on in the next, are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from eqsat_layout.targets.cpu.amx.axes import OverlappingAxes
from eqsat_layout.targets.schedules.accesses import StageAxis, places_of


@dataclass(frozen=True)
class Image:
    """``rows``: the axes of places of the window. ``windows``: by their number, the axis of steps that moves along it,
    and by how many pixels. ``channels``: other axes of steps, those of a pixel."""

    rows: tuple[StageAxis, ...]
    windows: Mapping[int, tuple[StageAxis, int]]
    channels: OverlappingAxes

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the image, along the axes of rows."""
        return tuple((axis.extent or 1) + self._reach(number) for number, axis in enumerate(self.rows))

    @property
    def line(self) -> int:
        """Pixels of a step along the first axis."""
        return math.prod(self.extents[1:])

    @property
    def reach(self) -> int:
        """Pixels from a window's first to its last."""
        return sum(self._reach(number) * pixels for number, pixels in enumerate(self._pixels))

    def lines(self, rows: int) -> int:
        """Lines in which so many rows, beginning anywhere, and their windows are."""
        return math.ceil((self.line - 1 + rows + self.reach) / self.line)

    def pixel(self, places: Mapping[Any, Any]) -> Any:
        """How many pixels after the window's first one that of a step is."""
        moves = [places[axis.var] * (distance * self._pixels[n]) for n, (axis, distance) in self.windows.items()]
        return sum(moves[1:], moves[0]) if moves else 0

    def channel(self, places: Mapping[Any, Any]) -> Any:
        """Its element of the pixel."""
        place: Any = 0
        for axis in self.channels.axes:
            place = place * axis.extent + places[axis.var]
        return place

    def is_result(self, places: Mapping[Any, Any]) -> Any:
        """The row is a place of the window; ``None`` where all are."""
        held = [places[axis.var] < axis.extent for n, axis in enumerate(self.rows) if n and self._reach(n)]
        return tirx.all(*held) if held else None

    def at(self, pixel: Any, zero: Any) -> dict[Any, Any]:
        """The places along the axes of rows and windows at which a pixel of the image is read."""
        axes = [StageAxis(axis.var, extent, axis.reduce) for axis, extent in zip(self.rows, self.extents, strict=True)]
        return places_of(axes, pixel) | {axis.var: zero for axis, _ in self.windows.values()}

    @property
    def _pixels(self) -> tuple[int, ...]:
        """Pixels of a step along each axis of rows."""
        return tuple(math.prod(self.extents[number + 1 :]) for number in range(len(self.rows)))

    def _reach(self, number: int) -> int:
        axis, distance = self.windows.get(number, (None, 0))
        return 0 if axis is None else ((axis.extent or 1) - 1) * distance
