"""Sizes that may hang on shapes known at run time only, and conditions on them, as data.

In: numbers, names of symbols, and operations on them as lists, which JSON can hold. Out: more of them, and their
values. What is true is 1, what is not is 0. Nothing here needs TVM: programs run where there is none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

Size = Any
"""``int``, the name of a symbol, or ``[operation, size, size]``."""

LARGEST: Final = (1 << 31) - (1 << 20)
"""As many elements, or threads, are counted in 32 bits: what is added for the last tile, or for a pad, is less."""

_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "and": min,
    "or": max,
}


def operation(name: str, a: Size, b: Size) -> Size:
    """The operation on two sizes, worked out where they are numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return _OPERATIONS[name](a, b)
    return [name, a, b]


def product(sizes: Any) -> Size:
    """The product of all ``sizes``."""
    total: Size = 1
    for size in sizes:
        total = size if total == 1 else operation("mul", total, size)
    return total


def value_of(size: Size, symbols: Mapping[str, int]) -> int:
    """The number that a size is where symbols have these values."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return symbols[size]
    name, a, b = size
    return _OPERATIONS[name](value_of(a, symbols), value_of(b, symbols))


def is_size(size: Any, symbols: Collection[str]) -> bool:
    """Whether it is a size of these symbols."""
    if isinstance(size, list | tuple) and len(size) == 3:
        name, *operands = size
        return isinstance(name, str) and name in _OPERATIONS and all(is_size(one, symbols) for one in operands)
    return type(size) is int or (isinstance(size, str) and size in symbols)


def symbols_of_size(size: Size) -> set[str]:
    """The symbols that a size hangs on."""
    if isinstance(size, str):
        return {size}
    return set() if isinstance(size, int) else symbols_of_size(size[1]) | symbols_of_size(size[2])
