"""What a plan changes, in a few rows: which ops are run in other layouts or by other algorithms, and what that saves.

In: for each op what it was and what it is now. Out: :class:`Change`, one for all ops of which the same is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.table import Table
from rich.text import Text

from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.tables import FittedTable

AS_WRITTEN: Final = "as written"
"""What an op is run as that the plan does not touch."""

GONE: Final = "not needed any more"
"""What an op is run as that the plan does without."""


TRANSFORMS: Final = "layout transforms"
"""The op of the change that is about them."""

_SAME: Final = 0.02
"""Share of a cost below which a difference is no reason."""


@dataclass(frozen=True)
class Change:
    """Ops of one kind that were run ``was`` and are run ``now``; modelled seconds of all of them ``before``, ``after``.

    ``names`` are what a person knows them by. ``rules``: those of the user's that the ops are run by now.
    """

    op: str
    was: str
    now: str
    before: float
    after: float
    names: tuple[str, ...]
    rules: str = ""

    @property
    def saved(self) -> float:
        """Seconds; negative where it costs more."""
        return self.before - self.after

    @property
    def why(self) -> str:
        """What is gained by it, in words."""
        if self.op == TRANSFORMS:
            return "layouts that meet without a copy" if self.saved > 0 else "paid for the layouts above"
        if self.is_kept:
            return "nothing cheaper was found"
        if self.now == GONE:
            return "nothing reads it any more"
        if self.rules:
            return f"rule {self.rules}"
        if self.is_follower:
            return "takes the layout of its neighbours"
        if self.saved < 0:
            return "its neighbours gain more by it"
        return "cheaper by itself"

    @property
    def is_follower(self) -> bool:
        """The ops take another layout, and cost what they did."""
        is_other = self.op != TRANSFORMS and not self.is_kept and self.now != GONE and not self.rules
        return is_other and abs(self.saved) <= _SAME * self.before

    @property
    def is_kept(self) -> bool:
        """The ops stay as they were written."""
        return self.now == AS_WRITTEN


def joined_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """One for all of the same kind, the largest savings first."""
    found: dict[tuple[str, ...], Change] = {}
    for change in changes:
        key = (change.op, change.was, change.now, change.rules)
        other = found.get(key)
        found[key] = change if other is None else _sum(other, change)
    return tuple(sorted(found.values(), key=lambda c: (c.is_kept, -c.saved, c.op, c.now)))


def _sum(one: Change, other: Change) -> Change:
    before, after = one.before + other.before, one.after + other.after
    return replace(one, before=before, after=after, names=(*one.names, *other.names))


def changes_table(changes: Sequence[Change], at_most: int) -> Table:
    """The first rows, and one for the rest."""
    table = FittedTable(show_edge=False)
    table.add_column("ops", justify="right", no_wrap=True)
    table.add_column("op", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("was", overflow="fold")
    table.add_column("is now", overflow="fold", style="cyan")
    for name in ("before", "after", "saved"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = changes if len(changes) <= at_most else changes[: at_most - 1]
    rest = changes[len(shown) :]
    for change in shown:
        table.add_row(*map(Text, (f"{len(change.names):,}", change.op, change.was, change.now, *_seconds([change]))))
    if rest:
        ops = sum(len(c.names) for c in rest)
        table.add_row(*map(Text, (f"{ops:,}", f"{len(rest)} more kinds", "", "", *_seconds(rest))))
    return table


def _seconds(changes: Sequence[Change]) -> tuple[str, str, str]:
    before, after = sum(c.before for c in changes), sum(c.after for c in changes)
    return format_seconds(before), format_seconds(after), format_seconds(before - after)
