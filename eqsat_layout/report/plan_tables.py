"""A plan as tables.

In: a :class:`~eqsat_layout.report.plan_record.PlanRecord`. Out: what prints on a terminal, and the figures of the HTML
page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from eqsat_layout.report.changes import changes_table
from eqsat_layout.report.explain import said_of_kernels
from eqsat_layout.report.figures import count, format_bytes, format_seconds, spanned
from eqsat_layout.report.plan_record import PlanRecord
from eqsat_layout.report.records import Transform
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.report.text import comparison_table, labelled, stage_times

_SHOWN_TRANSFORMS: Final = 12
_SHOWN_CHANGES: Final = 12


def plan_table(plan: PlanRecord) -> RenderableType:
    """The whole plan, as a terminal shows it."""
    return Group(*_plan_parts(plan))


def describe_gap(plan: PlanRecord) -> str:
    """``optimal``, or how far from it the plan may be."""
    return "proven optimal" if plan.is_optimal else f"at most {plan.gap:.2%} above the optimum"


def plan_rows(plan: PlanRecord) -> list[tuple[str, str, str, str]]:
    """The rows of :func:`comparison_table` for a plan: cost, bound, transforms, what they move."""
    before, after, stats = plan.input_transforms, plan.transforms, plan.stats
    constants: list[tuple[str, str, str, str]] = []
    if stats.constant_bytes != stats.input_constant_bytes:
        sizes = format_bytes(stats.input_constant_bytes), format_bytes(stats.constant_bytes)
        constants = [("constants", *sizes, "once per layout that they are used in")]
    return [
        ("modelled cost", format_seconds(plan.input_cost), format_seconds(plan.cost), _gain(plan)),
        ("lower bound", "", format_seconds(plan.lower_bound), describe_gap(plan)),
        ("layout transforms", f"{len(before):,}", f"{len(after):,}", ""),
        ("their traffic", _traffic(before), _traffic(after), "bytes read and written"),
        *constants,
    ]


def _gain(plan: PlanRecord) -> str:
    """What the plan gains or costs beside the program as it was written."""
    if plan.written_cost is None:
        return "" if plan.input_cost == plan.cost else f"{plan.speedup:.2f} times cheaper"
    written = format_seconds(plan.written_cost)
    if plan.cost >= plan.written_cost:
        more = plan.cost / plan.written_cost if plan.written_cost > 0 else math.inf
        return f"{more:.2f} times what it costs as written, {written}"
    less = plan.written_cost / plan.cost if plan.cost > 0 else math.inf
    return f"{less:.2f} times cheaper than as written, {written}"


def page_figures(plan: PlanRecord) -> list[tuple[str, str, str]]:
    """The head of the HTML page: name, value, remark."""
    before, after, stats = plan.input_transforms, plan.transforms, plan.stats
    return [
        ("modelled cost before", format_seconds(plan.input_cost), ""),
        ("modelled cost after", format_seconds(plan.cost), _gain(plan)),
        ("cost as built", format_seconds(plan.built_cost), said_of_kernels(plan.kernels)),
        ("lower bound", format_seconds(plan.lower_bound), describe_gap(plan)),
        ("layout transforms", f"{len(before):,} → {len(after):,}", f"{_traffic(before)} → {_traffic(after)}"),
        (
            "searched",
            f"{stats.e_nodes:,} e-nodes",
            f"{stats.ops:,} ops, {count(stats.rounds, 'round')}, {format_seconds(sum(stats.seconds.values()))}",
        ),
    ]


def _plan_parts(plan: PlanRecord) -> Iterator[RenderableType]:
    yield Text.assemble(("Layout plan", "bold"), "" if plan.changed else "  (nothing to gain: the module is unchanged)")
    yield Padding(comparison_table(("input", "plan"), plan_rows(plan)), (0, 0, 0, 2))
    changes = [change for change in plan.changes if not change.is_kept]
    if changes:
        yield Text("What changes, the largest savings first", style="bold")
        yield Padding(changes_table(changes, _SHOWN_CHANGES), (0, 0, 0, 1))
    if plan.transforms:
        yield from _transform_parts(plan.transforms)
    search = f"{plan.stats.ops:,} ops, {plan.stats.e_nodes:,} e-nodes in {plan.stats.e_classes:,} e-classes"
    rows: list[tuple[str, RenderableType]] = [
        ("Search", f"{search}, {count(plan.stats.rounds, 'round')}"),
        ("Time", stage_times(plan.stats.seconds)),
    ]
    yield labelled([*rows, *(("Note", Text(note)) for note in plan.notes)])


def _transform_parts(transforms: Sequence[Transform]) -> Iterator[RenderableType]:
    groups: dict[Any, list[Transform]] = {}
    for t in transforms:
        groups.setdefault((t.function, t.shape, t.dtype, t.bytes, t.layouts), []).append(t)
    largest = sorted(groups.values(), key=lambda group: -sum(t.bytes for t in group))
    shown = largest if len(largest) <= _SHOWN_TRANSFORMS else largest[: _SHOWN_TRANSFORMS - 1]
    rest = [t for group in largest[len(shown) :] for t in group]
    several = len({t.function for t in transforms}) > 1
    table = FittedTable(show_edge=False)
    if several:
        table.add_column("function", overflow="ellipsis", no_wrap=True, max_width=18)
    table.add_column("times", justify="right", no_wrap=True)
    table.add_column("tensor", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("type", no_wrap=True)
    table.add_column("traffic", justify="right", no_wrap=True)
    table.add_column("layouts", overflow="fold", style="cyan")
    for group in shown:
        t, total = group[0], format_bytes(sum(t.bytes for t in group))
        kind = f"{'x'.join(str(e) for e in t.shape)} {t.dtype}"
        cells = (str(len(group)), spanned([t.tensor for t in group]), kind, total, t.layouts)
        table.add_row(*(Text(c) for c in ((t.function, *cells) if several else cells)))
    yield Text("Layout transforms that stay, the largest first", style="bold")
    yield Padding(table, (0, 0, 0, 1))
    if rest:
        yield Text(f"   ... and {len(rest):,} more, {format_bytes(sum(t.bytes for t in rest))} together")


def _traffic(transforms: Sequence[Transform]) -> str:
    return format_bytes(sum(t.bytes for t in transforms))
