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

Load: TypeAlias = Callable[[int, Any, Any], Any]
"""From the number of a run among those of its 16 rows, and the row and column where it begins in the warp's part, to
the statement that loads what it is stored with; or ``None``."""
Store: TypeAlias = Callable[[int, Any, Any, Callable[[Any], Any]], Any]
"""From the same and the sum of each of a run's lanes to the statement that stores it."""


def waiting_words(columns: int) -> int:
    """Words of shared memory for the sums of a warp that are about to be stored."""
    return ROWS * (columns + _PAD)


def turns_of(columns: int, run: int) -> int:
    """Runs of a thread in 16 rows."""
    return math.ceil(ROWS * columns // run / LANES)


def stored_in_runs(
    shared: Any, start: Any, sums: Any, extents: tuple[int, int], run: int, lane: Any, load: Load, store: Store
) -> list[Any]:
    """``start``: the word where the warp's shared memory begins. ``extents``: its rows and columns."""
    rows, columns = extents
    pitch = columns + _PAD
    vectors = ROWS * columns // run
    turns = range(turns_of(columns, run))
    statements: list[Any] = []

    def place(turn: int) -> tuple[Any, Any, Any]:
        """Row and column of a run, and whether there is one."""
        vector = lane + turn * LANES
        is_there = vector < vectors if vectors % LANES else None
        return tirx.floordiv(vector * run, columns), tirx.floormod(vector * run, columns), is_there

    def loaded(band: int, turn: int) -> Any:
        here, across, is_there = place(turn)
        statement = load(turn, band * ROWS + here, across)
        return statement and guarded(is_there, statement)

    def stored(band: int, turn: int) -> Any:
        here, across, is_there = place(turn)

        def total(along: Any) -> Any:
            return at(shared, start + here * pitch + across + along)

        return guarded(is_there, store(turn, band * ROWS + here, across, total))

    for band in range(rows // ROWS):
        statements += [loaded(band, turn) for turn in turns]
        statements += [_spread(shared, start, sums, band, columns, lane), warp_barrier()]
        statements += [*(stored(band, turn) for turn in turns), warp_barrier()]
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
