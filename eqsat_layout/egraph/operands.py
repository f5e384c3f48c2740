"""The operand lists of an e-graph, read from its cells.

In: the tables of an e-graph. Out: for the class of a list, what it lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat_layout.egraph.tables import Tables


class OperandLists:
    """A class of lists that holds several cells has one content. ``tensor`` is done to every operand."""

    def __init__(self, tables: Tables, tensor: Callable[[Any], Any] = lambda handle: handle):
        self._cells = {cell: (tensor(x), rest) for x, rest, cell in tables.rows("Arg")}
        self._known: dict[Any, tuple[Any, ...]] = {cell: () for (cell,) in tables.rows("End")}

    def of(self, handle: Any) -> tuple[Any, ...]:
        """The operands of a list."""
        cells: list[Any] = []
        rest = handle
        while rest not in self._known:
            cells.append(rest)
            rest = self._cells[rest][1]
        for cell in reversed(cells):
            first, rest = self._cells[cell]
            self._known[cell] = (first, *self._known[rest])
        return self._known[handle]
