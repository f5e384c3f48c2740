"""Stream-K: as many blocks as the machine holds at once, each with an equal run of all (tile, turn of its sum) pairs.

In: how many tiles there are, the turns of each (steps between barriers), and the blocks. Out: the run of a block, in
numbers for the model and in expressions for the kernel. A run may end inside of one tile and begin inside of another.
Where there are tiles for several waves, all but the last one or two of them stay whole, a block for each, behind the
blocks that share (Osama et al. 2023, "two-tile stream-K" with data parallel waves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.split_sums import Parts
from eqsat_layout.targets.cuda.kernels.statements import loop, number
from eqsat_layout.targets.schedules.accesses import quotient


def streamed_tiles(tiles: Any, streams: Any) -> Any:
    """Of so many tiles those that ``streams`` blocks share, less than two for each; both may be arrays."""
    return tiles - np.maximum(tiles // streams - 1, 0) * streams


def most_parts(turns: Any, run: Any) -> Any:
    """Of a tile of so many turns, where no run has fewer than ``run``."""
    return -(-turns // np.maximum(run, 1)) + 1


@dataclass(frozen=True)
class EvenRuns:
    """``tiles`` of ``turns`` each; ``streams``: the blocks that share some."""

    tiles: int
    turns: int
    streams: int

    @property
    def shared(self) -> int:
        """Tiles; they come first."""
        return int(streamed_tiles(self.tiles, self.streams))

    @property
    def blocks(self) -> int:
        """All that are launched."""
        return self.streams + self.tiles - self.shared

    @property
    def slots(self) -> int:
        """A run's block and its tiles go up together: their sum is the number of a part, of no other."""
        return self.streams + self.shared

    def each(self, block: Any, body: Callable[[Any, Any, Any, Parts], Any]) -> Any:
        """``body`` of each tile of a block's run: the tile, its first turn here, how many are here, its parts."""
        begin, end = self._begin(block), self._begin(block + 1)
        first, last = quotient(begin, self.turns), quotient(end - 1, self.turns)

        def one(index: Any) -> Any:
            tile = first + index
            start = tirx.max(begin - tile * self.turns, 0)
            count = tirx.min(end - tile * self.turns, self.turns) - start
            return body(tile, start, count, self._parts(block, tile))

        return loop(last - first + 1, one)

    @property
    def _pairs(self) -> int:
        return self.shared * self.turns

    def _begin(self, block: Any) -> Any:
        """The first pair of a block's run."""
        own = quotient(block * self._pairs, self.streams)
        return tirx.Select(block < self.streams, own, self._pairs + (block - self.streams) * self.turns)

    def _owner(self, pair: Any) -> Any:
        """The block in whose run a pair is that is shared: the last one whose first pair is none behind it."""
        return quotient((pair + 1) * self.streams - 1, self._pairs)

    def _parts(self, block: Any, tile: Any) -> Parts:
        """Whole tiles have one."""
        first, last = self._owner(tile * self.turns), self._owner(tile * self.turns + (self.turns - 1))
        count = tirx.Select(block < self.streams, last - first + 1, number(1))
        return Parts(count, block + tile, lambda part: first + tile + part)
