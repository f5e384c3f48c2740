"""Long rows, by one byte of the keys after the other.

In: rows, what gives words and what takes places. Out: statements for one row.
"""

from __future__ import annotations

from typing import Any, Final

from tvm.script.ir_builder import tirx as T

from eqsat_layout.passes.sorts.rows import KEY_BITS, SortedRows, alloc, bits_of, int32, place_in

DIGIT: Final = 8
"""Bits by which words are told apart at a time."""

_SELECTED: Final = 11
_FEWER: Final = 9
"""Bits of a key by which words are left out first."""


def by_digits(rows: SortedRows, word: Any, put: Any) -> None:
    """Least digits first; each time equal ones keep their order. Where few are wanted, only of those that may be."""
    n, bits, values = rows.length, KEY_BITS[rows.dtype], 1 << DIGIT
    digits = -(-bits // DIGIT)
    words, others, starts, sums = alloc(n), alloc(n), alloc(digits * values, "int32"), alloc(2, "int32")

    def digit(value: Any, number: int) -> Any:
        return bits_of(value, number * DIGIT, DIGIT) + number * values

    with T.serial(0, n) as i:
        words[i] = word(i)
    left = _selected(rows, words, bits) if rows.count * 2 <= n else n
    with T.serial(0, digits * values) as i:
        starts[i] = int32(0)
    with T.serial(0, left) as i:
        for number in range(digits):
            at = T.bind(digit(words[i], number))
            starts[at] = starts[at] + 1
    for number in range(digits):
        sums[0] = int32(0)
        with T.serial(0, values) as i:
            sums[1] = starts[number * values + i]
            starts[number * values + i] = sums[0]
            sums[0] = sums[0] + sums[1]
        with T.serial(0, left) as i:
            at = T.bind(digit(words[i], number))
            to = T.bind(starts[at])
            others[to] = words[i]
            starts[at] = to + 1
        words, others = others, words
    with T.serial(0, rows.count) as i:
        put(i, place_in(words[i]))


def _selected(rows: SortedRows, words: Any, bits: int) -> Any:
    """How many words are left: all that begin as the last one wanted does, or before it, moved to the front."""
    width = min(bits, _SELECTED if rows.length >= 1 << _SELECTED else _FEWER)
    found, sums = alloc(1 << width, "int32"), alloc(3, "int32")

    def beginning(i: Any) -> Any:
        return bits_of(words[i], bits - width, width)

    with T.serial(0, 1 << width) as i:
        found[i] = int32(0)
    with T.serial(0, rows.length) as i:
        at = T.bind(beginning(i))
        found[at] = found[at] + 1
    for i in range(3):
        sums[i] = int32(0)
    with T.serial(0, 1 << width) as i:
        sums[0] = sums[0] + found[i]
        sums[1] = sums[1] + (sums[0] < rows.count).astype("int32")  # at last the beginning of the last one wanted
    with T.serial(0, rows.length) as i:
        own = T.bind(words[i])
        words[sums[2]] = own
        sums[2] = sums[2] + (bits_of(own, bits - width, width) <= sums[1]).astype("int32")
    return T.bind(sums[2])
