"""Numbers and tables as a person reads them.

In: seconds, bytes, rows. Out: short texts with three digits and a unit, tables without frames.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from eqsat_layout.report.tables import FittedTable

_WIDTH: Final = 100

_UNPRINTABLE: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_NOTEBOOK: Final = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
"""No colours of its own for ground and text: a notebook may be dark."""


class SafeConsole(Console):
    """A console on which names can't do more than be read: those of a file may hold commands to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """The text with escapes in the place of control characters, but for line ends, and of what turns its direction."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


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


def format_seconds(seconds: float) -> str:
    """``12.3 us``, ``4.56 ms``, ``7.89 s``: three digits and the unit that fits."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if abs(seconds) < 5e-12:  # what is left of sums that are equal
        return "0 s"
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * scale:
            return f"{three_digits(seconds / scale)} {unit}"
    return f"{three_digits(seconds)} s"


def format_bytes(count: float) -> str:
    """``512 B``, ``1.50 KiB``, ``24.0 MiB``: binary units."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 999.5:
            return f"{three_digits(count)} {unit}"
    return f"{three_digits(count / 1024)} TiB"


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


def count(number: int, noun: str) -> str:
    """``3 rounds``, ``1 round``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spanned(names: Sequence[str]) -> str:
    """``relu``, ``relu and relu_1``, ``relu to relu_48``."""
    if len(names) < 2:
        return names[0] if names else "?"
    return f"{names[0]} {'and' if len(names) == 2 else 'to'} {names[-1]}"


def three_digits(value: float) -> str:
    """``1.23``, ``12.3``, ``123``."""
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0}f}"
