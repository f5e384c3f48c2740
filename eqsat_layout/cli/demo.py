"""The demo: plain ResNet-50, compiled and run, beside stock TVM and whatever other runtimes are installed.

In: sizes. Out: one table on the console, what to type next, and whether the numbers agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eqsat_layout.cli.demo_net import DemoNet
from eqsat_layout.cli.demo_peers import PEERS, stock_tvm
from eqsat_layout.cli.stages import Stages
from eqsat_layout.report.figures import format_seconds, three_digits
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.session.session import Session

TOLERANCE: Final = 1e-3
"""Largest difference that is taken for rounding, relative to the largest element of our result."""

_OWN: Final = "eqsat_layout"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PlainDemoOptions(DemoNet):
    """What the demo builds. ``run``: or only plan. ``html``: a page to write."""

    html: Path | None = None


@dataclass(frozen=True)
class Line:
    """One runtime: median seconds of ``runs`` runs, the greatest difference from our result; or why it was not run."""

    name: str
    seconds: float = 0.0
    runs: int = 0
    difference: float = 0.0
    missing: str = ""

    def agrees(self, magnitude: float) -> bool:
        """It differs by rounding only (false if one holds a NaN)."""
        return bool(self.missing) or self.difference <= TOLERANCE * magnitude


def run_plain_demo(options: PlainDemoOptions, console: Console) -> bool:
    """Compiles ResNet-50, runs it beside others and prints what came of it; false if the numbers disagree."""
    stages = Stages(console)
    with stages("model", f"{options.title}, random weights"):
        mod = options.module()
    agrees = True
    if options.run:
        with stages("compile", _OWN):
            session = Session(mod, target=options.target)
        agrees = _compared(mod, session, options, stages, console)
    if options.html or not options.run:
        from eqsat_layout.cli.common import write_text
        from eqsat_layout.planning.pipeline import plan as make_plan
        from eqsat_layout.targets.lowering import prepared

        with stages("plan"):
            plan = make_plan(prepared(mod, options.target), options.target)
        if options.html:
            write_text(options.html, plan.html(options.title))
            console.print(f"\nThe page: {options.html}", highlight=False, soft_wrap=True)
        if not options.run:
            console.print()
            console.print(plan)
    _print_next(console)
    return agrees


def _compared(mod: Any, session: Session, options: PlainDemoOptions, stages: Stages, console: Console) -> bool:
    x = options.input()
    with stages("run", _OWN):
        result, seconds = _timed(lambda: np.asarray(session.run(None, {"x": x})[0]), options.repeat)
    lines = [Line(_OWN, seconds, options.repeat)]
    for name, make in (*PEERS.items(), ("stock TVM", stock_tvm)):
        runs = options.repeat if name in PEERS else 1
        try:
            with stages("run", name):
                run = make(mod)
                other, seconds = _timed(lambda run=run: run(x), runs, warm=name in PEERS)  # type: ignore[misc]
        except ImportError as error:
            lines.append(Line(name, missing=f"{error.name} is not installed"))
            continue
        lines.append(Line(name, seconds, runs, float(np.max(np.abs(result - other)))))
    magnitude = float(np.max(np.abs(result)))
    console.print()
    console.print(Text(options.title, style="bold"))
    console.print(Padding(demo_table(lines), (0, 0, 0, 1)))
    agrees = all(line.agrees(magnitude) for line in lines)
    verdict = ("the numbers agree", "bold green") if agrees else ("THE NUMBERS DISAGREE", "bold red")
    limit = f": tolerance {TOLERANCE * magnitude:.2g}, outputs reach {magnitude:.3g}; one machine, not a benchmark"
    console.print(Text.assemble("  ", verdict, limit))
    return agrees


def _timed(run: Callable[[], Array], runs: int, warm: bool = True) -> tuple[Array, float]:
    """The result, and median seconds of a run, one that is not counted before."""
    result = run() if warm else None
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    assert result is not None
    return result, statistics.median(seconds)


def demo_table(lines: list[Line]) -> Table:
    """Runtimes, the first of which the others are compared with."""
    table = FittedTable(show_edge=False)
    table.add_column("runtime")
    for name in ("one run", "takes", "differs by"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", style="dim")
    for cells in _cells(lines):
        table.add_row(*map(Text, cells))
    return table


def _cells(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    own = lines[0]
    for line in lines:
        if line.missing:
            yield line.name, "", "", "", line.missing
            continue
        times = "" if line is own else f"{three_digits(line.seconds / own.seconds)} times as long"
        difference = "" if line is own else f"{line.difference:.2g}"
        remark = f"median of {line.runs}" if line.runs > 1 else "one run"
        yield line.name, format_seconds(line.seconds), times, difference, remark


def _print_next(console: Console) -> None:
    console.print()
    console.print(Text("Your own model next:", style="bold"))
    for command in (
        "eqsat-layout compile model.onnx -o model.so",
        "eqsat-layout bench model.onnx --against onnxruntime",
        "eqsat-layout plan model.onnx --html plan.html",
    ):
        console.print(f"  {command}", style="cyan", highlight=False)
