"""Sums of a warp on their way to memory: each thread gets runs along rows, which it stores as they lie together.

In: the registers that instructions added up in, and shared memory of the warp's own. Out: statements that store every
run, 16 rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.fragments import COLUMNS, ROWS, place_of_sum
from eqsat_layout.targets.cuda.kernels.statements import LANES, at, guarded, kept, sequence, vectorized, warp_barrier

_PAD: Final = 8
"""Words between the rows: so pairs of sums meet in no bank."""

Store: TypeAlias = Callable[[Any, Any, Callable[[Any], Any]], Any]
"""From the row and column where a run begins, in the warp's part, and the sum of each of its lanes to a statement."""


def waiting_words(columns: int) -> int:
    """Of shared memory, for the sums of a warp that are about to be stored."""
    return ROWS * (columns + _PAD)


def stored_in_runs(
    shared: Any, start: Any, sums: Any, extents: tuple[int, int], run: int, lane: Any, store: Store
) -> list[Any]:
    """``start``: the word where the warp's shared memory begins. ``extents``: its rows and columns."""
    rows, columns = extents
    pitch = columns + _PAD
    vectors = ROWS * columns // run
    statements: list[Any] = []
    for band in range(rows // ROWS):
        statements += [_spread(shared, start, sums, band, columns, lane), warp_barrier()]
        for turn in range(math.ceil(vectors / LANES)):
            vector = lane + turn * LANES
            here, across = tirx.floordiv(vector * run, columns), tirx.floormod(vector * run, columns)

            def total(along: Any, here: Any = here, across: Any = across) -> Any:
                return at(shared, start + here * pitch + across + along)

            is_there = vector < vectors if vectors % LANES else None
            statements.append(guarded(is_there, store(band * ROWS + here, across, total)))
        statements.append(warp_barrier())
    return statements


def _spread(shared: Any, start: Any, sums: Any, band: int, columns: int, lane: Any) -> Any:
    """Registers of 16 rows of sums to shared memory."""
    tiles = columns // COLUMNS

    def pair(tile: int, half: int) -> Any:
        row, column = place_of_sum(lane, half)
        register = (band * tiles + tile) * 4 + half * 2
        where = start + row * (columns + _PAD) + tile * COLUMNS + column
        return vectorized(2, lambda along: kept(shared, at(sums, register + along), where + along))

    return sequence(pair(tile, half) for tile in range(tiles) for half in range(2))
