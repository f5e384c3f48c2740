"""How many work items make a work group, and how many keep a device busy.

In: how many there are, and figures of the device. Out: the size of a group: the one with which the busiest compute
unit has least to do; of several the largest, as a group shares what its L1 cache holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class WorkGroups:
    """``units``: compute units. ``wave``: work items that one runs together. ``largest``: work items of a group.
    ``busy``: work items that keep the device busy (assumed).

    ``wave`` and ``largest`` are powers of two.
    """

    units: int
    wave: int
    largest: int
    busy: int = 1024

    def size(self, items: int | None) -> int:
        """A power of two. ``items``: one at least; ``None`` where they are not known before the launch."""
        if items is None:
            return self.largest
        enough = 1 << (items - 1).bit_length()
        fewest, most = min(self.wave, enough), min(self.largest, enough)
        sizes = [fewest << k for k in range((most // fewest).bit_length())]
        return min(sizes, key=lambda size: (self._waves(items, size), -size))

    def _waves(self, items: int, size: int) -> int:
        """The waves of the busiest unit; the last group counts as a whole one."""
        groups = -(-items // size)
        return -(-groups // self.units) * -(-size // self.wave)


USUAL: Final = WorkGroups(units=1, wave=64, largest=64)
"""Of a device of which nothing is known."""
