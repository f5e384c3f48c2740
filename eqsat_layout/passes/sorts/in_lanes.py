"""Rows that lie across memory: neighbours are lanes of vectors.

In: rows, what gives vectors of their elements and what takes them sorted. Out: statements for so many rows.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from eqsat_layout.passes.sorts.rows import LANES, SortedRows, alloc


def in_lanes(rows: SortedRows, column: Any, put: Any, lanes: int, kind: str) -> None:
    """Neighbouring rows, one a lane: the first few in order while the rows go by, or a network of Batcher's."""
    n, count = rows.length, rows.count
    if _is_kept_in_lanes(rows):
        best, own = alloc(count * lanes, kind), alloc(2 * lanes, kind)
        with T.unroll(0, count) as q, T.vectorized(0, lanes) as v:
            best[q * lanes + v] = tirx.max_value(kind)
        with T.serial(0, n) as i:
            with T.vectorized(0, lanes) as v:
                own[v] = column(i, v)
            with T.unroll(0, count) as q:
                with T.vectorized(0, lanes) as v:
                    own[lanes + v] = tirx.Max(best[q * lanes + v], own[v])
                with T.vectorized(0, lanes) as v:
                    best[q * lanes + v] = tirx.Min(best[q * lanes + v], own[v])
                with T.vectorized(0, lanes) as v:
                    own[v] = own[lanes + v]
    else:
        best, own = alloc(n * lanes, kind), alloc(lanes, kind)
        with T.serial(0, n) as i, T.vectorized(0, lanes) as v:
            best[i * lanes + v] = column(i, v)
        for length, apart in _network(n):
            first = apart % length
            blocks = -(-(n - apart - first) // (2 * apart)) if n - apart > first else 0
            with T.serial(0, max(blocks, 0)) as j, T.serial(0, apart) as i:
                low = T.bind(first + j * 2 * apart + i)
                is_pair = low // (2 * length) == (low + apart) // (2 * length)
                with T.If(tirx.And(low + apart < n, is_pair)), T.Then():
                    with T.vectorized(0, lanes) as v:
                        own[v] = tirx.Max(best[low * lanes + v], best[(low + apart) * lanes + v])
                    with T.vectorized(0, lanes) as v:
                        best[low * lanes + v] = tirx.Min(best[low * lanes + v], best[(low + apart) * lanes + v])
                    with T.vectorized(0, lanes) as v:
                        best[(low + apart) * lanes + v] = own[v]
    with T.serial(0, count) as q, T.vectorized(0, lanes) as v:
        put(q, best[q * lanes + v], v)


def _network(n: int) -> list[tuple[int, int]]:
    """Steps of Batcher's merge sort: how long the pieces are that are merged, and how far apart what is compared."""
    lengths = [1 << bit for bit in range((n - 1).bit_length())]
    return [(length, length >> bit) for length in lengths for bit in range(length.bit_length())]


def _is_kept_in_lanes(rows: SortedRows) -> bool:
    """By the comparisons of an element; those that are kept have to fit into registers."""
    return rows.count <= min(LANES, max(1, len(_network(rows.length)) // 2))
