"""What was refused, as a table.

In: refusals of one plan. Out: :class:`Refusals`, a tuple of them that prints as a table, one row for each reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from eqsat_layout.report.records import Refusal
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.report.text import html_text, plain_text

_WIDTH = 120


class Refusals(tuple[Refusal, ...]):
    """A tuple of :class:`Refusal`; ``str()`` is a table, and so is what a notebook shows."""

    __slots__ = ()

    def __rich__(self) -> RenderableType:
        if not self:
            return Text("Nothing was refused.")
        table = FittedTable(show_edge=False)
        table.add_column("times", justify="right")
        for name in ("op", "layouts or algorithms", "of", "why not"):
            table.add_column(name, overflow="fold")
        for row in self._rows():
            table.add_row(*map(Text, row))
        return table

    def __str__(self) -> str:
        return plain_text(self, _WIDTH)

    def _repr_html_(self) -> str:
        return html_text(self, _WIDTH)

    def _rows(self) -> Iterator[tuple[str, str, str, str, str]]:
        """How often, the op, what it does not take, of which operand or result, why."""
        rows: dict[tuple[str, str, str], list[str]] = {}
        for r in self:
            rows.setdefault((r.op, r.side, r.reason), []).append(r.layout or str(r.index_map))
        for (op, side, reason), layouts in rows.items():
            yield str(len(layouts)), op, "; ".join(dict.fromkeys(layouts)), side, reason
