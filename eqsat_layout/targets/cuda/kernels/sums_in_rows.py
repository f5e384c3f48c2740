"""Sums of a warp on their way to memory: each thread gets runs along rows, which it stores as they lie together.

In: the registers that instructions added up in, and shared memory of the warp's own. Out: statements that store every
run, 16 rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.fragments import COLUMNS, ROWS, place_of_sum
from eqsat_layout.targets.cuda.kernels.statements import (
    LANES,
    at,
    guarded,
    kept,
    sequence_of,
    unrolled,
    vectorized,
    warp_barrier,
)

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


@dataclass(frozen=True)
class WarpSums:
    """The sums of a warp: ``rows`` by ``columns``, in the buffer ``registers``, ``lane`` being the thread's number.

    They pass through the buffer ``shared`` from word ``start`` on, and are stored ``run`` elements at a time.
    """

    registers: Any
    rows: int
    columns: int
    run: int
    lane: Any
    shared: Any
    start: Any


def stored_in_runs(sums: WarpSums, load: Load, store: Store) -> Any:
    """Statements that ``load`` what belongs to each run, and ``store`` it."""
    run, columns, lane = sums.run, sums.columns, sums.lane
    pitch = columns + _PAD
    vectors = ROWS * columns // run
    turns = range(turns_of(columns, run))

    def place(turn: int) -> tuple[Any, Any, Any]:
        """Row and column of a run, and whether there is one."""
        vector = lane + turn * LANES
        is_there = vector < vectors if vectors % LANES else None
        return tirx.floordiv(vector * run, columns), tirx.floormod(vector * run, columns), is_there

    def loaded(band: Any, turn: int) -> Any:
        here, across, is_there = place(turn)
        statement = load(turn, band * ROWS + here, across)
        return statement and guarded(is_there, statement)

    def stored(band: Any, turn: int) -> Any:
        here, across, is_there = place(turn)

        def total(along: Any) -> Any:
            return at(sums.shared, sums.start + here * pitch + across + along)

        return guarded(is_there, store(turn, band * ROWS + here, across, total))

    def passed(band: Any) -> Any:
        ahead = [loaded(band, turn) for turn in turns]
        spread = [_spread(sums, band), warp_barrier()]
        return sequence_of([*ahead, *spread, *(stored(band, turn) for turn in turns), warp_barrier()])

    return unrolled(sums.rows // ROWS, passed)


def _spread(sums: WarpSums, band: Any) -> Any:
    """Registers of 16 rows of sums to shared memory."""
    tiles = sums.columns // COLUMNS

    def pair(tile: int, half: int) -> Any:
        row, column = place_of_sum(sums.lane, half)
        register = (band * tiles + tile) * 4 + half * 2
        where = sums.start + row * (sums.columns + _PAD) + tile * COLUMNS + column
        return vectorized(2, lambda along: kept(sums.shared, at(sums.registers, register + along), where + along))

    return sequence_of(pair(tile, half) for tile in range(tiles) for half in range(2))
