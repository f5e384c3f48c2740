"""Sizes that may hang on shapes known at run time only, as data.

In: expressions of TIR. Out: numbers, names of symbols, and operations on them as lists, which JSON can hold; and their
values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import TargetError

Size = Any
"""``int``, the name of a symbol, or ``[operation, size, size]``."""

_OPERATIONS: Final[Mapping[str, tuple[Any, Callable[[int, int], int]]]] = {
    "add": (tirx.Add, operator.add),
    "sub": (tirx.Sub, operator.sub),
    "mul": (tirx.Mul, operator.mul),
    "floordiv": (tirx.FloorDiv, operator.floordiv),
    "floormod": (tirx.FloorMod, operator.mod),
    "min": (tirx.Min, min),
    "max": (tirx.Max, max),
}
_NAMES: Final = {kind: name for name, (kind, _) in _OPERATIONS.items()}


def size_of(expr: Any, symbols: Mapping[Any, Size]) -> Size:
    """``expr`` as data; ``symbols`` by variable. :class:`TargetError` for what is no arithmetic of sizes."""
    if isinstance(expr, int | tirx.IntImm):
        return int(expr)
    if isinstance(expr, tvm.ir.Var) and expr in symbols:
        return symbols[expr]
    if isinstance(expr, tirx.Cast):
        return size_of(expr.value, symbols)
    name = _NAMES.get(type(expr))
    if name is None:
        raise TargetError(f"a size that the host of a device can't work out: {expr}")
    return operation(name, size_of(expr.a, symbols), size_of(expr.b, symbols))


def operation(name: str, a: Size, b: Size) -> Size:
    """The operation on two sizes, worked out where they are numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return _OPERATIONS[name][1](a, b)
    return [name, a, b]


def product(sizes: Any) -> Size:
    """Of all ``sizes``."""
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
    return _OPERATIONS[name][1](value_of(a, symbols), value_of(b, symbols))
