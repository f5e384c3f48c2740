"""Tables that keep every cell, however narrow the terminal is.

In: columns and rows, as of rich's. Out: a table where its columns fit side by side, else a paragraph for each row.
"""

from __future__ import annotations

from typing import Any, Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

_READABLE: Final = 8
"""Columns for a cell that is broken into lines; longer words are broken, too."""

_WIDE: Final = 10_000
"""Columns that no cell needs, to measure what it would take."""


class FittedTable(Table):
    """Without frames. rich cuts cells, and leaves out columns, where there is no room."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"box": box.SIMPLE_HEAD, **options})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.row_count and options.max_width < self._needed(console, options):
            yield from map(self._row, range(self.row_count))
        else:
            yield from super().__rich_console__(console, options)

    def _needed(self, console: Console, options: ConsoleOptions) -> int:
        _, right, _, left = self.padding
        unpressed = options.update_width(_WIDE)
        edges = 0 if self.pad_edge else left + right
        lines = 0 if self.box is None else len(self.columns) - 1 + 2 * self.show_edge
        return sum(left + right + _width(console, unpressed, one) for one in self.columns) - edges + lines

    def _row(self, at: int) -> Padding:
        """What would stand in the row, each cell behind the name of its column; further lines are indented."""
        said = Text()
        for column in self.columns:
            cell = list(column.cells)[at]
            words = cell if isinstance(cell, Text) else Text.from_markup(str(cell))
            if not words:
                continue
            if said:
                said.append("; ")
            if self.show_header and column.header:
                said.append(f"{column.header} ", style="dim")
            said.append_text(words)
        return Padding(said, (0, 0, 0, 1))


def _width(console: Console, options: ConsoleOptions, column: Column) -> int:
    sizes = [Measurement.get(console, options, cell) for cell in column.cells]
    wanted = max(one.maximum if column.no_wrap else min(one.minimum, _READABLE) for one in sizes)
    wanted = max(wanted, Measurement.get(console, options, column.header).maximum)
    return wanted if column.max_width is None else min(wanted, column.max_width)
