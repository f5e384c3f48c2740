"""The first few of a row, kept in order while it goes by.

In: rows, what gives words and what takes places. Out: statements for one row: the least of a block takes its place
among the first ones, until it has none there.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from eqsat_layout.passes.sorts.rows import LANES, LAST, SortedRows, alloc, int32, int64, place_in

_BLOCK: Final = 64
"""Words that are looked at together."""

_UNROLLED: Final = 8
"""First ones that stay in registers."""


def first_ones(rows: SortedRows, word: Any, put: Any) -> None:
    """``best`` are the first words so far. The least of a block takes its place among them, until it has none there."""
    count, lanes = rows.count, LANES
    best, block, low = alloc(count), alloc(_BLOCK), alloc(lanes)
    loop = T.unroll if count <= _UNROLLED else T.serial
    with loop(0, count) as q:
        best[q] = int64(LAST)

    def find(extent: int, taken: Any = None) -> None:
        """The least one comes to lie in ``low[0]``; ``taken`` is one no more."""
        with T.vectorized(0, lanes) as v:
            low[v] = int64(LAST)
        with T.unroll(0, -(-extent // lanes)) as t:
            if taken is not None:
                with T.vectorized(0, lanes) as v:
                    at = t * lanes + v
                    block[at] = tirx.Select(block[at].equal(taken), int64(LAST), block[at])
            with T.vectorized(0, lanes) as v:
                low[v] = tirx.Min(low[v], block[t * lanes + v])
        half = lanes // 2
        while half:
            with T.vectorized(0, half) as v:
                low[v] = tirx.Min(low[v], low[half + v])
            half //= 2

    def look(start: Any, extent: int) -> None:
        with T.serial(0, extent) as j:
            block[j] = word(start + j)
        for j in range(extent, -(-extent // lanes) * lanes):
            block[j] = int64(LAST)
        find(extent)
        with T.While(low[0] < best[count - 1]):
            own = T.bind(low[0])
            with loop(0, count - 1) as p:
                q = count - 1 - p
                best[q] = tirx.Min(best[q], tirx.Max(best[q - 1], own))
            best[0] = tirx.Min(best[0], own)
            find(extent, own)

    whole, rest = divmod(rows.length, _BLOCK)
    if whole:
        at, step = alloc(1, "int32"), _step(whole)
        at[0] = int32(0)
        with T.serial(0, whole):
            look(T.bind(at[0] * _BLOCK), _BLOCK)
            at[0] = tirx.Select(at[0] + step < whole, at[0] + step, at[0] + (step - whole))
    if rest:
        look(int32(whole * _BLOCK), rest)
    with T.serial(0, count) as q:
        put(q, place_in(best[q]))


def _step(whole: int) -> int:
    """From one block to the next that is looked at. In the order of memory, each element of a row that is sorted the
    other way takes a place among the first; words say themselves where they come from, so that any order will do."""
    step = max(1, round(whole * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, whole) > 1:
        step += 1
    return step
