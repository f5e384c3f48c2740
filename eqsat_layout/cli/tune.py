"""The command ``tune``: measures the kernels that a model's plans are made of.

In: a model, a target, and where to measure. Out: the kernels in the database, and a table of what was done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from eqsat_layout.cli.stages import Stages
from eqsat_layout.cost.database import Database
from eqsat_layout.models import resnet50
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.source_module import as_module
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.tuning.remote import Remote
from eqsat_layout.tuning.tune import TuneInterrupt, TuneReport, TuneState, tune

_SHOWN: Final = 6
"""Failures and notes that are printed."""
_WIDEST: Final = 40
_GAIN: Final = 0.001
"""A plan that is cheaper by less is no gain."""


@dataclass(frozen=True)
class TuneOptions:
    """What the command line was told. ``model``: a file, None for the ResNet-50 of the demo."""

    model: Path | None
    target: Any
    seconds: float | None
    database: Path | None
    tracker: str | None
    key: str | None
    approx: bool
    shapes: Mapping[str, Sequence[Any]] | None = None
    precision: str | None = None


def run_tune(options: TuneOptions, console: Console) -> bool:
    """Tunes and prints; False if it was interrupted. :class:`EqsatError` for what can't be read, run or reached."""
    database = Database(options.database)
    remote = None if options.tracker is None else Remote.parse(options.tracker, options.key)
    target_of(options.target)  # refuses what is none before a model is read, which can take long
    database.check_writable()
    mod = _model(options, Stages(console))
    interrupted = False
    with _Bar(console) as bar:
        try:
            report = tune(
                mod,
                options.target,
                database=database,
                seconds=options.seconds,
                remote=remote,
                progress=bar.show,
                approx=options.approx,
            )
        except TuneInterrupt as interrupt:
            report, interrupted = interrupt.report, True
    console.print()
    console.print(Text(report.machine, style="bold"))
    console.print(Padding(report_table(report), (0, 0, 0, 2)))
    _print_remarks(report, console)
    console.print(f"Stored in {database.path}", highlight=False, soft_wrap=True)
    if interrupted:
        console.print("Interrupted: what was measured is kept, and the same command goes on from there.")
    return not interrupted


def report_table(report: TuneReport) -> Table:
    """Kernels, and what the plan costs by what was measured."""
    table = FittedTable(pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("kernels measured", str(report.measured), f"in {format_seconds(report.seconds)}")
    if report.known:
        table.add_row("known before", str(report.known), "not measured again")
    if report.failures:
        table.add_row("failed", str(len(report.failures)), "could not be built or run")
    table.add_row("left", str(report.left), "run it again to go on" if report.left else "")
    if report.ranks is not None:
        own = "" if report.layout_ranks is None else f"{report.layout_ranks:.2f} among the layouts of one op"
        table.add_row("rank correlation of the model", f"{report.ranks:.2f}", own)
    if report.cost is not None:
        if report.cost_before is not None:
            table.add_row("plan before", format_seconds(report.cost_before), "by the measured costs")
            if report.cost >= report.cost_before * (1 - _GAIN):
                table.add_row("gained", "nothing", "the plan before is as good")
        remark = f"{len(report.modelled)} of its kernels are only modelled" if report.modelled else ""
        table.add_row("plan now", format_seconds(report.cost), remark or "all of its kernels are measured")
    return table


def _model(options: TuneOptions, stages: Stages) -> Any:
    asked: Options = {"shapes": options.shapes, "precision": options.precision}
    if options.model is None:
        with stages("model", "ResNet-50, 1x3x224x224"):
            return as_module(resnet50(), asked)[0]
    with stages("read", options.model.name):
        return as_module(options.model, asked)[0]


def _print_remarks(report: TuneReport, console: Console) -> None:
    lines = [f"failed: {failure.kernel}: {failure.reason}" for failure in report.failures] + list(report.notes)
    for line in lines[:_SHOWN]:
        console.print(Text(line, style="yellow"))
    if len(lines) > _SHOWN:
        console.print(Text(f"... and {len(lines) - _SHOWN} more", style="yellow"))


class _Bar:
    """Kernels done of those wanted, the one that is measured, and the time. The total grows as plans are looked at."""

    def __init__(self, console: Console):
        columns = (
            TextColumn("tune"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[kernel]}", style="cyan"),
        )
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("tune", total=None, kernel="reading the program")

    def show(self, state: TuneState) -> None:
        """Called by tuning."""
        kernel = state.kernel or "planning"
        if len(kernel) > _WIDEST:
            kernel = f"{kernel[: _WIDEST - 3]}..."
        self._progress.update(self._task, completed=state.done, total=state.total, kernel=kernel)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.update(self._task, kernel="")
        self._progress.stop()
