"""What planning found, and how a person reads it. Room: the end of the way, no TVM and no e-graph inside.

In: the chosen module with its costs, the layout transforms that stay, and statistics. Out: tables, plain data.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eqsat_layout.maps import Extent, IndexMap

if TYPE_CHECKING:
    from eqsat_layout.report.explain import Explanation

OPTIMAL_GAP: Final = 1e-6
"""A plan whose gap is at most this is called optimal: below it lies the rounding of the solver."""

_WIDTH = 100
_SHOWN_TRANSFORMS = 12


@dataclass(frozen=True)
class Transform:
    """A layout rewrite of one tensor that the program carries out when it runs.

    ``shape`` is the logical shape, ``bytes`` what the rewrite reads and writes in all.
    """

    function: str
    tensor: str
    index_map: IndexMap
    shape: tuple[Extent, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True)
class Stats:
    """How big the search was and where the time went; ``seconds`` is in the order of the stages.

    ``constant_bytes`` is what the constants of the plan take, once per layout that they are used in; folding added what
    is more than ``input_constant_bytes``.
    """

    ops: int
    e_nodes: int
    e_classes: int
    rounds: int
    seconds: Mapping[str, float]
    constant_bytes: int = 0
    input_constant_bytes: int = 0


@dataclass(frozen=True)
class Refusal:
    """A layout that did not go through an op. ``side`` is the operand or result that it was asked for."""

    op: str
    side: str
    index_map: IndexMap
    reason: str

    def __str__(self) -> str:
        return f"{self.op}: {self.index_map} of {self.side}: {self.reason}"


@dataclass(frozen=True)
class Plan:
    """The chosen module and what is known of it. Costs are modelled seconds of one run; ``lower_bound`` is proven.

    ``module`` is the input itself where ``changed`` is false. ``notes`` say what the user should know: layouts that
    could not be had, limits that were hit.
    """

    module: Any = field(repr=False)
    cost: float
    input_cost: float
    lower_bound: float
    transforms: tuple[Transform, ...]
    input_transforms: tuple[Transform, ...]
    stats: Stats
    notes: tuple[str, ...]
    changed: bool
    refusals: Callable[[], tuple[Refusal, ...]] = field(default=tuple, repr=False, compare=False)
    explained: Callable[[], Explanation] | None = field(default=None, repr=False, compare=False)
    page: Callable[[str, Plan], str] | None = field(default=None, repr=False, compare=False)

    def why_not(self, op: str = "") -> tuple[Refusal, ...]:
        """The layouts that did not go through ops whose name contains ``op``, and why. Worked out when asked for."""
        return tuple(r for r in self.refusals() if op in r.op)

    def explain(self) -> Explanation:
        """Why each remaining transform stays, what it would cost to do without, and how each op came to its layouts.

        Worked out when asked for: the extraction is solved once more per transform that stays.
        """
        from eqsat_layout.report.explain import Explanation

        return Explanation((), ()) if self.explained is None else self.explained()

    def html(self, title: str = "Layout plan") -> str:
        """One self-contained page: the program before and after, layouts in colour, bytes, costs, bound and gap."""
        return "" if self.page is None else self.page(title, self)

    @property
    def gap(self) -> float:
        """How far above the lower bound the cost may be, relative to the cost; 0 for an optimal plan."""
        return max(0.0, self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0

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


def plain_text(renderable: RenderableType, width: int = _WIDTH) -> str:
    """``renderable`` as text without colours, ``width`` columns at most, no blanks at line ends."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def format_seconds(seconds: float) -> str:
    """``12.3 us``, ``4.56 ms``, ``7.89 s``: three digits and the unit that fits."""
    if seconds == 0 or not math.isfinite(seconds):
        return "0 s" if seconds == 0 else f"{seconds} s"
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_bytes(count: float) -> str:
    """``512 B``, ``1.50 KiB``, ``24.0 MiB``: binary units."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 999.5:
            return f"{_three_digits(count)} {unit}"
    return f"{_three_digits(count / 1024)} TiB"


def describe_gap(plan: Plan) -> str:
    """``optimal``, or how far from it the plan may be."""
    return "proven optimal" if plan.is_optimal else f"at most {plan.gap:.2%} above the optimum"


def comparison_table(columns: tuple[str, str], rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """A table without frame: what, how much before, how much after, and a remark in grey."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def plan_rows(plan: Plan) -> list[tuple[str, str, str, str]]:
    """The rows of :func:`comparison_table` for a plan: cost, bound, transforms, what they move."""
    gain = "" if plan.input_cost == plan.cost else f"{plan.speedup:.2f} times cheaper"
    before, after, stats = plan.input_transforms, plan.transforms, plan.stats
    constants: list[tuple[str, str, str, str]] = []
    if stats.constant_bytes != stats.input_constant_bytes:
        sizes = format_bytes(stats.input_constant_bytes), format_bytes(stats.constant_bytes)
        constants = [("constants", *sizes, "once per layout that they are used in")]
    return [
        ("modelled cost", format_seconds(plan.input_cost), format_seconds(plan.cost), gain),
        ("lower bound", "", format_seconds(plan.lower_bound), describe_gap(plan)),
        ("layout transforms", f"{len(before):,}", f"{len(after):,}", ""),
        ("their traffic", _traffic(before), _traffic(after), "bytes read and written"),
        *constants,
    ]


def page_figures(plan: Plan) -> list[tuple[str, str, str]]:
    """The head of the HTML page: name, value, remark."""
    before, after, stats = plan.input_transforms, plan.transforms, plan.stats
    return [
        ("modelled cost before", format_seconds(plan.input_cost), ""),
        ("modelled cost after", format_seconds(plan.cost), f"{plan.speedup:.2f} times cheaper"),
        ("lower bound", format_seconds(plan.lower_bound), describe_gap(plan)),
        ("layout transforms", f"{len(before):,} → {len(after):,}", f"{_traffic(before)} → {_traffic(after)}"),
        ("searched", f"{stats.e_nodes:,} e-nodes", f"{stats.ops:,} ops, {_count(stats.rounds, 'round')}"),
        ("time", format_seconds(sum(stats.seconds.values())), ", ".join(_stages(stats.seconds))),
    ]


def _stages(seconds: Mapping[str, float]) -> Iterator[str]:
    return (f"{stage} {format_seconds(s)}" for stage, s in seconds.items() if s >= 1e-3)


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


def _plan_parts(plan: Plan) -> Iterator[RenderableType]:
    yield Text.assemble(("Layout plan", "bold"), "" if plan.changed else "  (nothing to gain: the module is unchanged)")
    yield Padding(comparison_table(("input", "plan"), plan_rows(plan)), (0, 0, 0, 2))
    if plan.transforms:
        yield from _transform_parts(plan.transforms)
    search = f"{plan.stats.ops:,} ops, {plan.stats.e_nodes:,} e-nodes in {plan.stats.e_classes:,} e-classes"
    rows: list[tuple[str, RenderableType]] = [
        ("Search", f"{search}, {_count(plan.stats.rounds, 'round')}"),
        ("Time", stage_times(plan.stats.seconds)),
    ]
    yield labelled([*rows, *(("Note", Text(note)) for note in plan.notes)])


def _transform_parts(transforms: Sequence[Transform]) -> Iterator[RenderableType]:
    largest = sorted(transforms, key=lambda t: -t.bytes)
    shown = largest if len(largest) <= _SHOWN_TRANSFORMS else largest[: _SHOWN_TRANSFORMS - 1]
    rest = largest[len(shown) :]
    several = len({t.function for t in transforms}) > 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    if several:
        table.add_column("function", overflow="ellipsis", no_wrap=True, max_width=18)
    table.add_column("tensor", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("type", no_wrap=True)
    table.add_column("traffic", justify="right", no_wrap=True)
    table.add_column("index map", overflow="fold", style="cyan")
    for t in shown:
        cells = (t.tensor, f"{'x'.join(str(e) for e in t.shape)} {t.dtype}", format_bytes(t.bytes), str(t.index_map))
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
        "shape": list(transform.shape),
        "dtype": transform.dtype,
        "bytes": transform.bytes,
    }


def _traffic(transforms: Sequence[Transform]) -> str:
    return format_bytes(sum(t.bytes for t in transforms))


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0}f}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
