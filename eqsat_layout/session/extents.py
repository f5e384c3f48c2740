"""Extents that a program makes of sizes that are known at run time only.

In: the sizes of one run. Out: nothing, or an error where an extent would be below zero: a window larger than its data.
Two of these may have a positive product, so that a program would go on with memory that nobody wrote.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eqsat_layout.errors import InputError

Tree = int | str | Sequence[Any]
"""A number, the name of a size, or an operation with two of the same: ``["-", "h", 2]``."""

OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Extent:
    """``text`` says what ``tree`` computes."""

    text: str
    tree: Tree


def check_not_negative(extents: Sequence[Extent], sizes: Mapping[str, int]) -> None:
    """:class:`InputError` for the first extent below zero; what is made of other sizes passes."""
    for extent in extents:
        value = _value(extent.tree, sizes)
        if value is not None and value < 0:
            given = ", ".join(f"{name} is {size}" for name, size in sizes.items())
            raise InputError(f"the inputs are too small for the program: where {given}, {extent.text} is {value}")


def _value(tree: Tree, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return sizes.get(tree)
    one, other = (_value(part, sizes) for part in tree[1:])
    if one is None or other is None or (tree[0] in ("//", "%") and not other):
        return None
    return OPERATIONS[tree[0]](one, other)
