"""Tables as a person reads them.

In: rows. Out: tables without frames, as text and as HTML.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from eqsat_layout.report.figures import format_seconds, printable
from eqsat_layout.report.tables import FittedTable

_WIDTH: Final = 100

_NOTEBOOK: Final = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
"""No colours of its own for ground and text: a notebook may be dark."""


class SafeConsole(Console):
    """A console on which names can't do more than be read: those of a file may hold commands to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def plain_text(renderable: RenderableType, width: int = _WIDTH) -> str:
    """``renderable`` as text without colours, ``width`` columns at most, no blanks at line ends."""
    buffer = io.StringIO()
    console = SafeConsole(file=buffer, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def html_text(renderable: RenderableType, width: int = _WIDTH) -> str:
    """``renderable`` as HTML for a notebook, in which lines keep their columns."""
    console = SafeConsole(file=io.StringIO(), width=width, record=True, force_terminal=True, color_system="truecolor")
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_NOTEBOOK)


def comparison_table(columns: tuple[str, str], rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """A table without frame: what, how much before, how much after, and a remark in grey."""
    table = FittedTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def labelled(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Lines with a bold label in front; what is too long for a line goes on under itself."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=6)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def stage_times(seconds: Mapping[str, float]) -> RenderableType:
    """The stages with their times, side by side: ``import 12.3 ms  saturate 45.6 ms``."""
    return Columns(
        [Text.assemble(stage, " ", (format_seconds(s), "cyan")) for stage, s in seconds.items()], padding=(0, 3)
    )
