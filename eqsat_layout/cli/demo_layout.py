"""The demo: ResNet-50 with frozen packed convolutions, planned, built and run.

In: sizes and a layout. Out: one report on the console, and whether the numbers of the two builds agree.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text
from tvm import relax

from eqsat_layout.cli.demo_net import DemoNet
from eqsat_layout.cli.stages import Stages
from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import parse_layout_name
from eqsat_layout.planning.pipeline import plan as make_plan
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.plan import Plan
from eqsat_layout.report.plan_tables import plan_rows
from eqsat_layout.report.text import comparison_table, labelled, stage_times
from eqsat_layout.targets.lowering import lower
from eqsat_layout.tir.structural import with_relax_functions

FROZEN: Final = "eqsat_layout.frozen"
"""Function attribute: op name -> the layouts of its data and weight that are given."""

TOLERANCE: Final = 1e-3
"""Largest difference that is taken for rounding, relative to the largest element of the reference."""

_SHOWN_NOTES = 4


@dataclass(frozen=True)
class DemoOptions(DemoNet):
    """What the demo builds, with its convolutions frozen to ``layout``."""

    layout: str = "NCHW16c"


@dataclass(frozen=True)
class Comparison:
    """What running both builds on one input gave: seconds per run, and how far apart the results are."""

    input_seconds: float
    plan_seconds: float
    difference: float
    magnitude: float

    @property
    def agrees(self) -> bool:
        """The results differ by rounding only (false if one holds a NaN)."""
        return self.difference <= TOLERANCE * self.magnitude


def run_demo(options: DemoOptions, console: Console) -> tuple[bool, Plan]:
    """Carries ResNet-50 through the whole house and prints what came of it; false if the numbers disagree."""
    stages = Stages(console)
    with stages("model", options.title):
        mod = options.module()
        frozen = freeze_convolutions(mod, options.layout)
    with stages("plan"):
        plan = make_plan(frozen, options.target)
    outcome = _build_and_run(mod, plan, options, stages) if options.run else None
    console.print()
    _report(plan, outcome, options, stages, console)
    return outcome is None or outcome.agrees, plan


def freeze_convolutions(mod: tvm.IRModule, layout: str) -> tvm.IRModule:
    """A copy of ``mod`` whose ``conv2d`` ops are frozen to ``layout``, with the weight's layout that goes with it."""
    layouts = [layout, weight_layout(layout)]
    return with_relax_functions(mod, lambda func: func.with_attr(FROZEN, {"relax.nn.conv2d": layouts}))


def weight_layout(layout: str) -> str:
    """The weight layout for a data layout: ``OIHW16i16o`` for ``NCHW16c``, ``OHWI`` for ``NHWC``, ``OIHW`` for NCHW."""
    tokens = parse_layout_name(layout)
    block = next((size for axis, size in tokens if axis == "C" and size), 0)
    outer = "".join(axis for axis, size in tokens if not size)
    if sorted(outer) != sorted("NCHW") or [t for t in tokens if t[1]] != ([("C", block)] if block else []):
        raise LayoutError(f"a layout for convolutions has N, C, H, W and at most one block of C, not {layout!r}")
    return outer.replace("C", "I").replace("N", "O") + (f"{block}i{block}o" if block else "")


def _build_and_run(mod: tvm.IRModule, plan: Plan, options: DemoOptions, stages: Stages) -> Comparison:
    with stages("compile", "the plan") as say:
        planned = relax.VirtualMachine(lower(plan.module, options.target, progress=say), tvm.cpu())
    with stages("compile", "the input, for comparison") as say:
        reference = relax.VirtualMachine(lower(mod, options.target, progress=say), tvm.cpu())
    x = tvm.runtime.tensor(options.input())
    with stages("run", f"both, {options.repeat} times each"):
        wanted, got = _result(reference, x), _result(planned, x)
        seconds = [(_time(reference, x), _time(planned, x)) for _ in range(options.repeat)]
    return Comparison(
        input_seconds=statistics.median(first for first, _ in seconds),
        plan_seconds=statistics.median(second for _, second in seconds),
        difference=float(np.max(np.abs(wanted - got))),
        magnitude=float(np.max(np.abs(wanted))),
    )


def _result(vm: Any, x: Any) -> npt.NDArray[Any]:
    return np.asarray(vm["main"](x).numpy(), dtype=np.float64)


def _time(vm: Any, x: Any) -> float:
    start = time.perf_counter()
    vm["main"](x)
    return time.perf_counter() - start


def _report(plan: Plan, outcome: Comparison | None, options: DemoOptions, stages: Stages, console: Console) -> None:
    layouts = f"conv2d frozen to {options.layout}, weights {weight_layout(options.layout)}"
    console.print(Text.assemble((options.title, "bold"), f", {layouts}"))
    rows = plan_rows(plan)
    if outcome is not None:
        before, after = outcome.input_seconds, outcome.plan_seconds
        remark = f"median of {options.repeat}, indicative: not a benchmark"
        rows.append(("measured, one run", format_seconds(before), format_seconds(after), remark))
    console.print(Padding(comparison_table(("input", "plan"), rows), (0, 0, 0, 2)))
    spent = {k: s for k, s in stages.seconds.items() if k != "plan"}
    seconds = {"model": spent.pop("model")} | dict(plan.stats.seconds) | spent
    lines: list[tuple[str, RenderableType]] = [("Time", stage_times(seconds)), *_note_lines(plan.notes)]
    if outcome is not None:
        lines.append(("Check", _verdict(outcome)))
    console.print(labelled(lines))


def _note_lines(notes: Sequence[str]) -> Iterator[tuple[str, RenderableType]]:
    shown = notes if len(notes) <= _SHOWN_NOTES else notes[: _SHOWN_NOTES - 1]
    for note in shown:
        yield "Note", Text(note)
    if len(shown) < len(notes):
        yield "", f"... and {len(notes) - len(shown)} more notes"


def _verdict(outcome: Comparison) -> Text:
    verdict = ("the numbers agree", "bold green") if outcome.agrees else ("THE NUMBERS DISAGREE", "bold red")
    limit = TOLERANCE * outcome.magnitude
    detail = f": maximum absolute difference {outcome.difference:.2g}, tolerance {limit:.2g}"
    return Text.assemble(verdict, detail, f" (outputs reach {outcome.magnitude:.3g})")
