"""Real models end to end: ``python -m bench.planning.models [--model NAME ...] [--layout NHWC] [--no-run]``.

Each is imported (torch.export or ONNX), prepared, its convolutions frozen to the layout, planned, and input and plan
are built, run and compared; one process per model. Needs the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from bench.results import difference, flat, magnitude

LAYOUTS = ("NCHW16c", "NHWC", "NCHW4c")
DEFAULT = (
    "resnet50:export",
    "resnet50:onnx",
    "mobilenet_v2:onnx",
    "densenet121:export",
    "unet:export",
    "vit_b_16:export",
    "bert:onnx",
)
TOLERANCE = 1e-3
"""Largest difference that is taken for rounding, relative to the largest element of the reference."""

STAGES = ("import", "prepare", "plan", "build input", "build plan")
WIDTH = 140


def main() -> None:
    options = _options()
    if options.one:
        print(f"\n{json.dumps(measure(options.one, options.layout, options.repeat, options.run))}")
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    results: dict[str, dict[str, Any]] = {}
    for spec in _specs(options.model or DEFAULT):
        with console.status(f"{spec} ({options.layout})"):
            results[spec] = _in_own_process(spec, options)
        if "error" in results[spec]:
            console.print(f"[bold red]{spec} failed:[/] {results[spec]['error']}", highlight=False)
    done = {spec: result for spec, result in results.items() if "error" not in result}
    if done:
        _report(done, options, console)
    if len(done) < len(results) or not all(result.get("agrees", True) for result in done.values()):
        raise SystemExit(1)


def measure(spec: str, layout: str, repeat: int, run: bool) -> dict[str, Any]:
    """One model, in this process. Times in seconds; ``spec`` is ``NAME:WAY``."""
    import tvm
    from tvm import relax

    import eqsat_layout
    from bench.networks import real
    from eqsat_layout.targets.lowering import lower, prepared

    seconds: dict[str, float] = {}
    name, way = spec.split(":")
    with _timed(seconds, "import"):
        model = real.load(name, way)
    with _timed(seconds, "prepare"):
        plain = prepared(model.module)
    eqsat_layout.plan(_warm_up())  # first calls load TVM's tables
    with _timed(seconds, "plan"):
        plan = eqsat_layout.plan(plain, desired_layouts=_desired(layout))
    title = real.MODELS[spec.split(":")[0]].title
    result: dict[str, Any] = {"title": title, "seconds": seconds, "plan": plan.to_dict()}
    if not run:
        return result
    with _timed(seconds, "build input"):
        before = relax.VirtualMachine(lower(plain), tvm.cpu())
    with _timed(seconds, "build plan"):
        after = relax.VirtualMachine(lower(plan.module), tvm.cpu())
    inputs = [tvm.runtime.tensor(array) for array in model.inputs]
    wanted, got = (flat(vm["main"](*inputs)) for vm in (before, after))
    times = [(_time(before, inputs), _time(after, inputs)) for _ in range(repeat)]
    return result | {
        "difference": difference(wanted, got),
        "from torch": difference(list(model.expected), wanted),
        "magnitude": magnitude(wanted),
        "agrees": _agrees(wanted, got) and _agrees(list(model.expected), wanted),
        "times": [statistics.median(column) for column in zip(*times, strict=True)] if times else [],
    }


def _desired(layout: str) -> dict[str, list[str]]:
    """Weights follow the data; those of a transposed convolution have their outer channel axes exchanged."""
    from eqsat_layout.cli.demo_layout import weight_layout

    weight = weight_layout(layout)
    exchanged = weight.translate(str.maketrans("IO", "OI"))  # the outer axes; blocks stay: outputs in the vectors
    return {"relax.nn.conv2d": [layout, weight], "relax.nn.conv2d_transpose": [layout, exchanged]}


def _warm_up() -> Any:
    from eqsat_layout.models import resnet50

    return resnet50(1, 32, 10, width=16, blocks=(1,))


def _agrees(wanted: list[np.ndarray], got: list[np.ndarray]) -> bool:
    """The difference is rounding; results that are all 0 show nothing, so they don't count as agreeing."""
    return difference(wanted, got) < TOLERANCE * magnitude(wanted)


def _time(vm: Any, inputs: list[Any]) -> float:
    start = time.perf_counter()
    vm["main"](*inputs)
    return time.perf_counter() - start


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - start


def _in_own_process(spec: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.planning.models", "--one", spec, "--layout", options.layout]
    command += ["--repeat", str(options.repeat)]
    done = subprocess.run([*command, *([] if options.run else ["--no-run"])], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"error": (lines or [f"exit code {done.returncode}"])[-1][:300]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


# ---- report -----------------------------------------------------------------------------------------------------


def _report(results: Mapping[str, Mapping[str, Any]], options: argparse.Namespace, console: Console) -> None:
    console.print()
    console.print(_gains(results, options))
    console.print(_seconds(results, options))
    for spec, result in results.items():
        notes = result["plan"]["notes"]
        if notes:
            more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
            console.print(f"[dim]{spec}: {notes[0]}{more}[/]", highlight=False)
    console.print(f"[dim]{_circumstances()}[/]", highlight=False)


def _gains(results: Mapping[str, Mapping[str, Any]], options: argparse.Namespace) -> Table:
    title = f"convolutions frozen to {options.layout}; input -> plan"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("model", no_wrap=True)
    names = ["ops", "transforms", "MiB", "modelled ms", "bound", "gap"]
    names += ["difference", "from torch", "of"] if options.run else []
    names += ["run ms"] if options.run and options.repeat else []
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for spec, result in results.items():
        table.add_row(_label(spec, result), *_gain_cells(result))
    return table


def _label(spec: str, result: Mapping[str, Any]) -> str:
    return f"{result['title']} [dim]{spec.partition(':')[2]}[/]"


def _gain_cells(result: Mapping[str, Any]) -> Iterator[str]:
    plan = result["plan"]
    before, after = plan["input_transforms"], plan["transforms"]
    yield f"{plan['stats']['ops']:,}"
    yield f"{len(before)} -> {len(after)}"
    yield _pair(sum(t["bytes"] for t in transforms) / 2**20 for transforms in (before, after))
    yield _pair((plan["input_cost_s"] * 1e3, plan["cost_s"] * 1e3))
    yield f"{plan['lower_bound_s'] * 1e3:.3g}"
    yield "0" if plan["is_optimal"] else f"{plan['gap']:.2%}"
    if "difference" in result:
        style = "green" if result["agrees"] else "bold red"
        yield f"[{style}]{result['difference']:.1e}[/]"
        yield f"[{style}]{result['from torch']:.1e}[/]"
        yield f"{result['magnitude']:.2g}"
    if result.get("times"):
        yield _pair(seconds * 1e3 for seconds in result["times"])


def _pair(values: Iterable[float]) -> str:
    return " -> ".join(f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in values)


def _seconds(results: Mapping[str, Mapping[str, Any]], options: argparse.Namespace) -> Table:
    inner = next(iter(results.values()))["plan"]["stats"]["seconds"]
    title = "seconds per stage (those of the plan in grey)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("model", no_wrap=True)
    columns = STAGES if options.run else STAGES[:3]
    for stage in columns:
        table.add_column(stage, justify="right")
        if stage == "plan":
            for name in inner:
                table.add_column(name, justify="right", style="dim", header_style="dim")
    for spec, result in results.items():
        cells = []
        for stage in columns:
            cells.append(f"{result['seconds'][stage]:.2f}")
            if stage == "plan":
                cells += [f"{result['plan']['stats']['seconds'].get(name, 0.0):.2f}" for name in inner]
        table.add_row(_label(spec, result), *cells)
    return table


def _circumstances() -> str:
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("apache-tvm", "torch", "onnx"))
    cores = len(os.sched_getaffinity(0))
    return (
        f"{platform.machine()}, {cores} threads, load {os.getloadavg()[0]:.1f}; {versions}. Times are indicative: "
        "nothing here waits for a quiet machine."
    )


# ---- arguments --------------------------------------------------------------------------------------------------


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", metavar="NAME", help=f"NAME or NAME:WAY. Default: {' '.join(DEFAULT)}")
    parser.add_argument("--layout", choices=LAYOUTS, default="NCHW16c", help="what every conv2d is frozen to")
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="timed runs of each build, taken in turns")
    parser.add_argument("--no-run", dest="run", action="store_false", help="plan only, build nothing")
    parser.add_argument("--one", metavar="NAME:WAY", help=argparse.SUPPRESS)
    return parser.parse_args()


def _specs(wanted: tuple[str, ...] | list[str]) -> list[str]:
    """``NAME:WAY`` for each; a name alone stands for both ways."""
    from bench.networks.real import MODELS, WAYS

    specs = []
    for spec in wanted:
        name, _, way = spec.partition(":")
        if name not in MODELS or (way and way not in WAYS):
            raise SystemExit(f"no model {spec!r}: NAME or NAME:WAY, of {', '.join(MODELS)} and {', '.join(WAYS)}")
        specs += [f"{name}:{w}" for w in ([way] if way else WAYS)]
    return specs


if __name__ == "__main__":
    main()
