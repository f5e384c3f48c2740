"""Why the plan is as it is, for a person.

In: reasons per region, worked out when asked for; nothing of TVM or of the e-graph. Out: an :class:`Explanation`, which
prints as text and as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eqsat_layout.report.figures import count, format_bytes, format_seconds, spanned
from eqsat_layout.report.records import KernelRecord, Transform
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.report.text import html_text, plain_text


@dataclass(frozen=True)
class StayingTransform:
    """A transform that stays: its modelled ``cost`` in seconds, and what the best program without it costs *more*.

    ``dearer`` is None where no program can do without. ``made_by`` and ``wanted_by`` name the ops on both sides: empty
    where the tensor comes from outside, or goes there.
    """

    transform: Transform
    cost: float
    dearer: float | None
    made_by: str
    wanted_by: tuple[str, ...]

    @property
    def reason(self) -> str:
        """In one sentence."""
        before, after = self.transform.before or "another layout", self.transform.after or "this one"
        source = f"{self.made_by} writes {before}" if self.made_by else f"it arrives as {before}"
        users = " and ".join(self.wanted_by)
        verb = "reads" if len(self.wanted_by) == 1 else "read"
        between = f"{source}, {f'{users} {verb} {after}' if users else f'the result has to be {after}'}"
        if self.cost == 0:
            between += ", which its kernel does at no cost of its own"
        if self.dearer is None:
            return f"{between}; no program was found without it"
        if self.dearer <= 0:
            return f"{between}; nothing is gained without it: the best other program costs the same"
        return f"{between}; the best program without it costs {format_seconds(self.dearer)} more"


@dataclass(frozen=True)
class ChosenOp:
    """How one op is run: formats as text, ``origin`` in words, the names of the rules that led there."""

    function: str
    tensor: str
    op: str
    operands: tuple[str, ...]
    result: str
    origin: str
    rules: tuple[str, ...]
    cost: float
    others: int


@dataclass(frozen=True)
class Explanation:
    """All reasons of one plan of this ``cost``; ``str()`` is text. ``kernels`` are those that the build makes;
    ``unchanged``: why parts of the program are left as written; ``slow``: the kernels that no fast code is known for.
    """

    transforms: tuple[StayingTransform, ...]
    choices: tuple[ChosenOp, ...]
    kernels: tuple[KernelRecord, ...] = ()
    cost: float = 0.0
    unchanged: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold: seconds, bytes, text."""
        return {
            "transforms": [
                {
                    "function": t.transform.function,
                    "tensor": t.transform.tensor,
                    "index_map": str(t.transform.index_map),
                    "before": t.transform.before,
                    "after": t.transform.after,
                    "bytes": t.transform.bytes,
                    "cost_s": t.cost,
                    "dearer_without_s": t.dearer,
                    "reason": t.reason,
                }
                for t in self.transforms
            ],
            "choices": [
                {
                    "function": c.function,
                    "tensor": c.tensor,
                    "op": c.op,
                    "operands": list(c.operands),
                    "result": c.result,
                    "origin": c.origin,
                    "rules": list(c.rules),
                    "cost_s": c.cost,
                    "others": c.others,
                }
                for c in self.choices
            ],
            "kernels": [
                {
                    "function": k.function,
                    "name": k.name,
                    "ops": list(k.ops),
                    "tensors": list(k.tensors),
                    "cost_s": k.cost,
                    "saved_s": k.saved,
                }
                for k in self.kernels
            ],
            "unchanged": list(self.unchanged),
            "slow_kernels": list(self.slow),
        }

    def __rich__(self) -> RenderableType:
        return Group(*self._parts())

    def __str__(self) -> str:
        return plain_text(self, width=140)

    def _repr_html_(self) -> str:
        return html_text(self, width=140)

    def _parts(self) -> Iterator[RenderableType]:
        if self.transforms:
            yield Text("Layout transforms that stay, and why", style="bold")
            alike: dict[Any, list[StayingTransform]] = {}
            for t in self.transforms:
                alike.setdefault((t.transform.layouts, t.transform.bytes, t.reason), []).append(t)
            for (layouts, moved, reason), group in alike.items():
                times = f"{len(group):,} times " if len(group) > 1 else ""
                names, cost = spanned([t.transform.tensor for t in group]), sum(t.cost for t in group)
                what = f"{times}{names}  {layouts}  {format_bytes(moved * len(group))}"
                yield Text.assemble("  ", (what, "cyan"), f"  {format_seconds(cost)}\n", f"    {reason}")
        else:
            yield Text("No layout transform was added or stays.", style="bold")
        for line in self.unchanged:
            yield Text(line)
        if self.choices:
            yield Text("How the ops are run", style="bold")
            yield self._table()
        yield from self._kernel_parts()
        if self.slow:
            yield Text("Kernels that no fast code is known for", style="bold")
            yield from (Text(f"  {line}") for line in self.slow)

    def _table(self) -> Table:
        table = FittedTable(show_edge=False)
        table.add_column("ops", justify="right")
        for name in ("tensor", "op", "result", "why", "rules"):
            table.add_column(name, overflow="fold")
        table.add_column("cost", justify="right", no_wrap=True)
        table.add_column("other ways", justify="right")
        for group in self.groups():
            first, others = group[0], sorted({c.others for c in group})
            cost, ways = format_seconds(sum(c.cost for c in group)), _span(others)
            names = spanned([c.tensor for c in group if c.tensor != "?"])
            cells = (str(len(group)), names, first.op, first.result, first.origin, ", ".join(first.rules))
            table.add_row(*map(Text, (*cells, cost, ways)))
        return table

    def _kernel_parts(self) -> Iterator[RenderableType]:
        """The kernels that save something, equal ones in one row."""
        groups: dict[Any, list[KernelRecord]] = {}
        for kernel in self.kernels:
            if kernel.saved > 0:
                groups.setdefault(kernel.ops, []).append(kernel)
        if not groups:
            return
        after = format_seconds(self.cost - sum(kernel.saved for kernel in self.kernels))
        yield Text(f"What the build joins: {said_of_kernels(self.kernels)}, {after} in all", style="bold")
        table = FittedTable(show_edge=False)
        table.add_column("kernels", justify="right", no_wrap=True)
        table.add_column("ops in each", overflow="fold")
        table.add_column("result", overflow="fold")
        for name in ("counted", "saved"):
            table.add_column(name, justify="right", no_wrap=True)
        for ops, own in sorted(groups.items(), key=lambda item: -sum(kernel.saved for kernel in item[1])):
            cost, saved = sum(kernel.cost for kernel in own), sum(kernel.saved for kernel in own)
            results = spanned([kernel.tensors[-1] for kernel in own])
            cells = (str(len(own)), " + ".join(ops), results, format_seconds(cost), format_seconds(saved))
            table.add_row(*map(Text, cells))
        yield table

    def groups(self) -> list[list[ChosenOp]]:
        """The choices, those of equal ops, layouts and reasons together, in the order in which they come first."""
        found: dict[Any, list[ChosenOp]] = {}
        for c in self.choices:
            found.setdefault((c.op, c.operands, c.result, c.origin, c.rules), []).append(c)
        return list(found.values())


def said_of_kernels(kernels: Sequence[KernelRecord]) -> str:
    """How many there are, and what joining saves."""
    saved = sum(kernel.saved for kernel in kernels)
    joins = f", joining saves {format_seconds(saved)}" if saved else ""
    return f"{count(len(kernels), 'kernel')}{joins}"


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
