"""Short rows: each element counts those before it, and goes where the count says.

In: rows, what gives words and what takes places. Out: statements for one row.
"""

from __future__ import annotations

from typing import Any, Final

from tvm.script.ir_builder import tirx as T

from eqsat_layout.passes.sorts.rows import LAST, SortedRows, alloc, int64

_LANES: Final = 32


def counted(rows: SortedRows, word: Any, put: Any) -> None:
    n = rows.length
    padded = -(-n // _LANES) * _LANES
    words, ranks, counts = alloc(padded), alloc(padded), alloc(_LANES)
    with T.serial(0, n) as i:
        words[i] = word(i)
    if padded > n:
        with T.serial(0, padded - n) as i:
            words[n + i] = int64(LAST)
    with T.serial(0, padded // _LANES) as tile:
        with T.vectorized(0, _LANES) as v:
            counts[v] = int64(0)
        with T.serial(0, n) as j, T.vectorized(0, _LANES) as v:
            counts[v] = counts[v] + (words[j] < words[tile * _LANES + v]).astype("int64")
        with T.vectorized(0, _LANES) as v:
            ranks[tile * _LANES + v] = counts[v]
    with T.serial(0, n) as i:
        if rows.count == n:
            put(ranks[i].astype("int32"), i)
        else:
            with T.If(ranks[i] < rows.count), T.Then():
                put(ranks[i].astype("int32"), i)
