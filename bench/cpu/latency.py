"""Latency beside other runtimes: ``python -m bench.cpu.latency [--model NAME ...] [--batch N ...] [--threads N ...]``.

Every engine has a process of its own; runs take turns, in a new order every round, and what is printed are medians and
medians of the ratios of a round. Engines that are missing are left out, and named. Needs the dependency group
``bench``. ``--quick``: three networks, fewer rounds, without stock TVM.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.processes import environment

MODELS = (
    "resnet50",
    "mobilenet_v2",
    "densenet121",
    "inception_v3",
    "efficientnet_b0",
    "convnext_tiny",
    "unet",
    "vit_b_16",
    "bert",
    "maxvit_t",
)
QUICK = ("resnet50", "mobilenet_v2", "bert")
OWN = "eqsat_layout"
STOCK = ("TVM", "TVM NHWC")
PEERS = ("ONNX Runtime", "OpenVINO", "torch", "torch.compile")
ENGINES = (OWN, *PEERS, *STOCK)
LIBRARIES = {"eqsat_layout", "eqsat_layout exact", *STOCK}
"""Engines that are built to a file first."""

BURST = 0.25
"""Seconds that an engine runs for when it is its turn; one run at least."""
ROUNDS, QUICK_ROUNDS = 15, 7
SLOW = 2.0
"""An engine whose runs take longer takes part in the first rounds only: as many as fit into :data:`PATIENCE`."""
PATIENCE = 20.0
"""Where the first run alone takes longer, it is the only one."""
LIMIT = 600.0
"""Seconds in which an engine starts and runs once, else it is left out: stock TVM needs more for ViT, eight images."""
REST = 0.3
"""Seconds before every turn: threads of the engine before go on spinning, on cores that the next is bound to."""
TOLERANCE = 1e-3
WIDTH = 170


@dataclass
class Figures:
    """What one engine did in one case: seconds of all runs, and the median of every round."""

    compile_seconds: float | None = None
    start_seconds: float = math.nan
    difference: float = math.nan
    magnitude: float = math.nan
    first_seconds: float = math.nan
    memory: float = math.nan
    rounds: dict[int, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return statistics.median(self.rounds.values()) if self.rounds else math.nan

    @property
    def agrees(self) -> bool:
        return self.difference <= TOLERANCE * self.magnitude


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    threads: int


def main() -> None:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    results: dict[Case, dict[str, Figures | str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in options.model:
            for batch in options.batch:
                for threads in options.threads:
                    case = Case(model, batch, threads)
                    with console.status(_name(case)) as status:

                        def say(what: str, case: Case = case, status: Any = status) -> None:
                            status.update(f"{_name(case)}: {what}")

                        results[case] = measure(case, options.engine, Path(folder), rounds, say)
                    _report_case(case, results[case], console)
    _report(results, console)
    if options.json:
        Path(options.json).write_text(json.dumps(_plain(results), indent=1))
    if not all(isinstance(f := own.get(OWN), Figures) and f.agrees for own in results.values() if OWN in own):
        raise SystemExit(1)


def measure(case: Case, engines: Sequence[str], folder: Path, rounds: int, say: Any) -> dict[str, Figures | str]:
    """By engine: its figures, or why there are none."""
    found: dict[str, Figures | str] = {}
    say("prepare")
    _answer_of(_process("prepare", "", case, folder))
    with contextlib.ExitStack() as stack:
        running: dict[str, subprocess.Popen[str]] = {}
        for engine in engines:
            say(f"build {engine}")
            try:
                figures = Figures()
                if engine in LIBRARIES:
                    built = _answer_of(_process("build", engine, case, folder))
                    figures.compile_seconds = built["compile seconds"]
                process = stack.enter_context(_served(engine, case, folder))
                first = _first_of(process)
                figures.start_seconds, figures.difference = first["start seconds"], first["difference"]
                figures.magnitude, figures.memory = first["magnitude"], first["memory"]
                (figures.first_seconds,) = first["seconds"]
                running[engine], found[engine] = process, figures
            except _EngineError as error:
                found[engine] = str(error)
        _take_turns(running, found, rounds, say)
    return found


def _take_turns(
    running: dict[str, subprocess.Popen[str]], found: dict[str, Figures | str], rounds: int, say: Any
) -> None:
    counts = dict.fromkeys(running, 1)
    spent: dict[str, float] = {}
    for engine in running:
        figures = found[engine]
        assert isinstance(figures, Figures)
        spent[engine] = figures.first_seconds
        if figures.first_seconds > PATIENCE:
            figures.rounds[0] = figures.first_seconds
    order = random.Random(0)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        names = list(running)
        order.shuffle(names)
        for engine in names:
            figures = found[engine]
            assert isinstance(figures, Figures)
            if figures.seconds > SLOW and spent[engine] > PATIENCE:
                continue
            time.sleep(REST)
            answer = _ask(running[engine], counts[engine])
            taken = statistics.median(answer["seconds"])
            spent[engine] += sum(answer["seconds"])
            figures.memory = answer["memory"]
            if number or taken > SLOW:  # the first round warms up
                figures.rounds[number] = taken
            counts[engine] = max(1, int(BURST / max(taken, 1e-5)))


# ---- processes --------------------------------------------------------------------------------------------------


class _EngineError(Exception):
    """An engine that can't run a network."""


def _process(what: str, engine: str, case: Case, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.cpu.engines", what, "--engine", engine]
    command += ["--model", case.model, "--batch", str(case.batch), "--threads", str(case.threads)]
    errors = (folder / "errors.txt").open("w")
    with errors:
        return subprocess.Popen(
            [*command, "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(case.threads),
            cwd=folder,
        )


def _answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        return _read(process)


@contextlib.contextmanager
def _served(engine: str, case: Case, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = _process("serve", engine, case, folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _first_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    timer = threading.Timer(LIMIT, process.kill)
    timer.start()
    try:
        return _read(process)
    except _EngineError as error:
        if timer.finished.is_set():
            raise _EngineError(f"not done after {LIMIT:.0f} s") from error
        raise
    finally:
        timer.cancel()


def _ask(process: subprocess.Popen[str], runs: int) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(f"{runs}\n")
    process.stdin.flush()
    return _read(process)


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line:
        answer: dict[str, Any] = json.loads(line)
        return answer
    process.wait()
    assert isinstance(process.args, list)
    folder = Path(process.args[-1])
    lines = [text for text in (folder / "errors.txt").read_text().splitlines() if text.strip()]
    errors = [text for text in lines if re.match(r"[\w.]*(Error|Exception)\b", text)]  # some go on about it
    raise _EngineError((errors or lines or [f"exit code {process.returncode}"])[-1][:200])


# ---- report -----------------------------------------------------------------------------------------------------


def _report_case(case: Case, found: Mapping[str, Figures | str], console: Console) -> None:
    table = Table(title=_name(case), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("engine", no_wrap=True)
    for name in ("ms", f"times {OWN}", "difference", "compile s", "start s", "memory MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    own = found.get(OWN)
    for engine, figures in found.items():
        if isinstance(figures, str):
            table.add_row(engine, f"[red]{figures}[/]")
            continue
        style = "" if figures.agrees else "[bold red]"
        table.add_row(
            engine,
            f"{figures.seconds * 1e3:.3g}",
            f"{ratio(figures, own):.2f}" if isinstance(own, Figures) else "",
            f"{style}{figures.difference:.1e}",
            "" if figures.compile_seconds is None else f"{figures.compile_seconds:.1f}",
            f"{figures.start_seconds:.1f}",
            f"{figures.memory / 2**20:.0f}",
        )
    console.print(table)


def ratio(other: Figures, own: Figures) -> float:
    """Median over the rounds that both ran in of the other's time over our own."""
    common = sorted(other.rounds.keys() & own.rounds.keys())
    if not common:
        return other.seconds / own.seconds
    return statistics.median(other.rounds[i] / own.rounds[i] for i in common)


def _report(results: Mapping[Case, Mapping[str, Figures | str]], console: Console) -> None:
    """How many times as long the others take, and the best of the peers."""
    engines = [e for e in ENGINES if e != OWN and any(e in found for found in results.values())]
    table = Table(title=f"times as long as {OWN}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("network", no_wrap=True)
    for name in (f"{OWN} ms", *engines, "best"):
        table.add_column(name, justify="right", no_wrap=True)
    columns: dict[str, list[float]] = {}
    for case, found in results.items():
        own = found.get(OWN)
        if not isinstance(own, Figures):
            continue
        ratios = {e: ratio(f, own) for e in engines if isinstance(f := found.get(e), Figures) and f.agrees}
        ratios["best"] = min((ratios[e] for e in PEERS if e in ratios), default=math.nan)
        cells = [_bold(ratios[e]) if e in ratios else "-" for e in (*engines, "best")]
        table.add_row(_name(case), f"{own.seconds * 1e3:.3g}", *cells)
        for engine, value in ratios.items():
            columns.setdefault(engine, []).append(value)
    if any(len(column) > 1 for column in columns.values()):
        table.add_section()
        means = [f"{statistics.geometric_mean(columns[e]):.2f}" if columns.get(e) else "-" for e in (*engines, "best")]
        table.add_row("geometric mean", "", *means)
    console.print(table)
    console.print(f"[dim]{_circumstances()}[/]", highlight=False)


def _bold(value: float) -> str:
    return f"[bold red]{value:.2f}[/]" if value < 1 else f"{value:.2f}"


def _name(case: Case) -> str:
    return f"{case.model}, batch {case.batch}, {case.threads} thread{'s'[: case.threads > 1]}"


def _circumstances() -> str:
    found = []
    for name in ("apache-tvm", "torch", "onnxruntime", "openvino"):
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    cores = len(os.sched_getaffinity(0))
    when = time.strftime("%Y-%m-%d")
    return f"{when}, {platform.machine()}, {cores} CPUs, load {os.getloadavg()[0]:.1f}; {', '.join(found)}; f32"


def _plain(results: Mapping[Case, Mapping[str, Figures | str]]) -> list[dict[str, Any]]:
    return [
        vars(case) | {e: f if isinstance(f, str) else vars(f) | {"seconds": f.seconds} for e, f in found.items()}
        for case, found in results.items()
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, metavar="NAME", help=f"of {' '.join(MODELS)}")
    parser.add_argument("--engine", nargs="+", choices=(*ENGINES, "eqsat_layout exact"), help="default: all")
    parser.add_argument("--batch", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--threads", nargs="+", type=int, default=[2], metavar="N")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help=f"default {ROUNDS}, quick {QUICK_ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="three networks, fewer rounds, without stock TVM")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    options.model = options.model or (QUICK if options.quick else MODELS)
    options.engine = options.engine or [e for e in ENGINES if not (options.quick and e in STOCK)]
    return options


if __name__ == "__main__":
    main()
