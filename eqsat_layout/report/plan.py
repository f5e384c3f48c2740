"""The plan that the user gets, as data and as a table.

In: the chosen module with its costs, the layout transforms that stay, and statistics. Out: :class:`Plan`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.report.changes import Change, changes_table
from eqsat_layout.report.explain import Explanation, said_of_kernels
from eqsat_layout.report.records import KernelRecord, Refusal, Stats, Transform
from eqsat_layout.report.refusals import Refusals
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.report.text import (
    comparison_table,
    count,
    format_bytes,
    format_seconds,
    html_text,
    labelled,
    plain_text,
    spanned,
    stage_times,
)

OPTIMAL_GAP: Final = 1e-6
"""A plan whose gap is at most this is called optimal: below it lies the rounding of the solver."""
_ROUNDING: Final = 1e-10
"""Costs that differ by less, relatively, were added up in another order."""

_SHOWN_TRANSFORMS: Final = 12
_SHOWN_CHANGES: Final = 12


@dataclass(frozen=True)
class Plan:
    """The chosen module and what is known of it. Costs are modelled seconds of one run; ``lower_bound`` is proven.

    ``written_cost`` is that of the program as it was written, where layouts were asked for: ``input_cost`` is that of
    these layouts with a transform wherever they meet others. ``ops`` are the names of what was planned. ``notes`` say
    what the user should know: layouts that could not be had, limits that were hit.
    """

    make_module: Callable[[], Any] = field(repr=False, compare=False)
    cost: float
    input_cost: float
    lower_bound: float
    transforms: tuple[Transform, ...]
    input_transforms: tuple[Transform, ...]
    stats: Stats
    notes: tuple[str, ...]
    changed: bool
    refusals: Callable[[], tuple[Refusal, ...]] = field(default=tuple, repr=False, compare=False)
    written_cost: float | None = None
    ops: tuple[str, ...] = ()
    told_changes: Callable[[], tuple[Change, ...]] = field(default=tuple, repr=False, compare=False)
    told_kernels: Callable[[], tuple[KernelRecord, ...]] = field(default=tuple, repr=False, compare=False)
    explained: Callable[[Plan], Explanation] | None = field(default=None, repr=False, compare=False)
    page: Callable[[str, Plan], str] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def module(self) -> Any:
        """The chosen module, written down when it is asked for first; the input itself where ``changed`` is false."""
        return self.make_module()

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """What is run in another layout or by another algorithm, in rows of equal ops, the largest savings first."""
        return self.told_changes()

    @cached_property
    def kernels(self) -> tuple[KernelRecord, ...]:
        """What the build makes one kernel of, in the order in which the program runs them. The target is asked when
        they are asked for: it joins kernels for that as it does for a build, which takes about as long as planning."""
        return self.told_kernels()

    @property
    def built_cost(self) -> float:
        """:attr:`cost`, less what the build saves by making one kernel of several that the plan counts one by one."""
        return self.cost - sum(kernel.saved for kernel in self.kernels)

    def why_not(self, op: str = "", layout: str = "") -> Refusals:
        """The layouts that did not go through ops whose name contains ``op``, and the algorithms that they were not
        offered, and why: a tuple that prints as a table; with ``layout`` those only whose name contains that. Worked
        out when asked for.

        Raises :class:`EqsatError` where no op has such a name, or nothing that is called so was refused.
        """
        if self.ops and not any(op in name for name in self.ops):
            raise EqsatError(f"no op of the program has {op!r} in its name; {did_you_mean(op, self.ops)}".rstrip("; "))
        found = [r for r in self.refusals() if op in r.op]
        refused = {r.layout or str(r.index_map) for r in found}
        if layout and not any(layout in name for name in refused):
            nearest = did_you_mean(layout, refused)
            raise EqsatError(f"no layout or algorithm with {layout!r} in its name was refused; {nearest}".rstrip("; "))
        return Refusals(r for r in found if layout in (r.layout or str(r.index_map)))

    def explain(self) -> Explanation:
        """Why each remaining transform stays, what it would cost to do without, how each op came to its layouts, and
        what becomes one kernel.

        Worked out when asked for: the extraction is solved once more per transform that stays.
        """
        return Explanation((), ()) if self.explained is None else self.explained(self)

    def html(self, title: str = "Layout plan") -> str:
        """One self-contained page: the program before and after, layouts in colour, bytes, costs, bound and gap."""
        return "" if self.page is None else self.page(title, self)

    @property
    def gap(self) -> float:
        """How far above the lower bound the cost may be, relative to the cost; 0 for an optimal plan."""
        gap = (self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0
        return gap if gap > _ROUNDING else 0.0

    @property
    def speedup(self) -> float:
        """Modelled cost of the input over that of the plan; 1 where nothing is gained."""
        if self.cost > 0:
            return self.input_cost / self.cost
        return math.inf if self.input_cost > 0 else 1.0

    @property
    def is_optimal(self) -> bool:
        """No cheaper plan exists in the explored space, under the cost model."""
        return self.gap <= OPTIMAL_GAP

    def to_dict(self) -> dict[str, Any]:
        """Everything but the module as plain data that JSON can hold: seconds, bytes, text."""
        return {
            "changed": self.changed,
            "cost_s": self.cost,
            "input_cost_s": self.input_cost,
            "written_cost_s": self.written_cost,
            "lower_bound_s": self.lower_bound,
            "gap": self.gap,
            "is_optimal": self.is_optimal,
            "transforms": [_transform_dict(t) for t in self.transforms],
            "input_transforms": [_transform_dict(t) for t in self.input_transforms],
            "stats": {
                "ops": self.stats.ops,
                "e_nodes": self.stats.e_nodes,
                "constant_bytes": self.stats.constant_bytes,
                "input_constant_bytes": self.stats.input_constant_bytes,
                "e_classes": self.stats.e_classes,
                "rounds": self.stats.rounds,
                "seconds": dict(self.stats.seconds),
            },
            "notes": list(self.notes),
        }

    def __rich__(self) -> RenderableType:
        return Group(*_plan_parts(self))

    def __str__(self) -> str:
        return plain_text(self)

    def _repr_html_(self) -> str:
        return html_text(self)


def describe_gap(plan: Plan) -> str:
    """``optimal``, or how far from it the plan may be."""
    return "proven optimal" if plan.is_optimal else f"at most {plan.gap:.2%} above the optimum"


def plan_rows(plan: Plan) -> list[tuple[str, str, str, str]]:
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


def _gain(plan: Plan) -> str:
    """What the plan gains or costs beside the program as it was written."""
    if plan.written_cost is None:
        return "" if plan.input_cost == plan.cost else f"{plan.speedup:.2f} times cheaper"
    written = format_seconds(plan.written_cost)
    if plan.cost >= plan.written_cost:
        more = plan.cost / plan.written_cost if plan.written_cost > 0 else math.inf
        return f"{more:.2f} times what it costs as written, {written}"
    less = plan.written_cost / plan.cost if plan.cost > 0 else math.inf
    return f"{less:.2f} times cheaper than as written, {written}"


def page_figures(plan: Plan) -> list[tuple[str, str, str]]:
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


def _plan_parts(plan: Plan) -> Iterator[RenderableType]:
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


def _transform_dict(transform: Transform) -> dict[str, Any]:
    return {
        "function": transform.function,
        "tensor": transform.tensor,
        "index_map": str(transform.index_map),
        "before": transform.before,
        "after": transform.after,
        "shape": list(transform.shape),
        "dtype": transform.dtype,
        "bytes": transform.bytes,
    }


def _traffic(transforms: Sequence[Transform]) -> str:
    return format_bytes(sum(t.bytes for t in transforms))
