"""Register tiles: how many elements of each axis of a result are made at once.

One, or many side by side as arrays, to be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class RegisterTile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Tiles:
    """Many of them: ``lanes`` and every one of ``sizes`` have an element for each."""

    vector: int
    lanes: Numbers
    sizes: tuple[Numbers, ...]

    @staticmethod
    def of_all(given: Sequence[Tiles]) -> Tiles:
        """Those of all, which have the same vector axis, in order."""
        sizes = map(np.concatenate, zip(*(tiles.sizes for tiles in given), strict=True))
        return Tiles(given[0].vector, np.concatenate([tiles.lanes for tiles in given]), tuple(sizes))

    def where(self, chosen: NDArray[np.bool_]) -> Tiles:
        """Those for which ``chosen`` is true."""
        return Tiles(self.vector, self.lanes[chosen], tuple(size[chosen] for size in self.sizes))

    def __getitem__(self, number: int) -> RegisterTile:
        return RegisterTile(self.vector, int(self.lanes[number]), tuple(int(size[number]) for size in self.sizes))
