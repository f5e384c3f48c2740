"""Rows that are sorted: keys of elements, and words that say where they come from too.

In: an element and its place. Out: a word, of which the least comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.script.ir_builder import tirx as T

PLACE_BITS: Final = 31
LANES: Final = 16
"""Words, or rows that lie side by side, that are compared at a time."""

LAST: Final = 2**63 - 1
"""A word behind all others."""

KEY_BITS: Final = {"float32": 32, "float16": 32, "int32": 32, "uint8": 8}
"""Of a key that differ, by dtype. Others of up to 32 bits are sorted as one of these
(:mod:`eqsat_layout.passes.sorts.types`)."""

_LARGEST: Final = 2**31 - 1
_INFINITY: Final = 0x7F800000
_NAN: Final = 0x7FC00000


@dataclass(frozen=True)
class SortedRows:
    """``length`` elements each, ``after`` apart, of which the first ``count`` are wanted. ``exact``: also of -0 and 0,
    which are equal, the first one comes first."""

    before: int
    length: int
    after: int
    count: int
    dtype: str
    is_descending: bool
    exact: bool

    def word(self, element: Any, place: Any) -> Any:
        """The least is the first one."""
        key = tirx.reinterpret("uint32", tirx.bitwise_xor(self.key(element, is_stable=True), int32(-(2**31))))
        return tirx.bitwise_or(tirx.shift_left(key.astype("int64"), int64(PLACE_BITS)), place.astype("int64"))

    def key(self, element: Any, *, is_stable: bool) -> Any:
        """int32. All NaN are the largest number. ``is_stable``: -0 is 0; else what :meth:`value` takes it for."""
        key = element.astype("int32")
        if self.dtype.startswith("float"):
            pattern = tirx.reinterpret("int32", element.astype("float32"))
            magnitude = tirx.bitwise_and(pattern, int32(_LARGEST))
            ordered = tirx.Select(pattern < 0, -magnitude, magnitude) if is_stable else _turned(pattern)
            key = tirx.Select(magnitude > _INFINITY, int32(_NAN), ordered)
        return tirx.bitwise_not(key) if self.is_descending else key

    def value(self, key: Any) -> Any:
        """Of a key that is not stable."""
        key = tirx.bitwise_not(key) if self.is_descending else key
        is_float = self.dtype.startswith("float")
        return (tirx.reinterpret("float32", _turned(key)) if is_float else key).astype(self.dtype)


def _turned(pattern: Any) -> Any:
    """Of the bits of a float an integer in the same order, and the bits of such an integer."""
    return tirx.bitwise_xor(pattern, tirx.bitwise_and(tirx.shift_right(pattern, int32(31)), int32(_LARGEST)))


def int32(value: int) -> Any:
    return tirx.const(value, "int32")


def int64(value: int) -> Any:
    return tirx.const(value, "int64")


def place_in(word: Any) -> Any:
    return tirx.bitwise_and(word, int64((1 << PLACE_BITS) - 1))


def bits_of(word: Any, first: int, count: int) -> Any:
    """Of its key, as int32."""
    own = tirx.shift_right(word, int64(PLACE_BITS + first))
    return tirx.bitwise_and(own, int64((1 << count) - 1)).astype("int32")


def alloc(extent: int, dtype: str = "int64") -> Any:
    return T.buffer_proxy(T.alloc_buffer([extent], dtype, scope="local"))
