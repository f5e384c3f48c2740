"""Seconds to compile networks, by stage: ``python -m bench.planning.compile [--model NAME ...]``.

Each time in a process of its own: with an empty cache, by stage and in one go; then again with what that left on disk;
and planning alone, imported before.
Python's bytecode is kept between them, as an installed package has it, whatever the environment says.
Needs the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cpu.latency import MODELS

STAGES = ("prepare", "plan", "emit", "legalize", "fold constants", "join", "build")


def by_stage(mod: Any) -> dict[str, float]:
    """What compile does, in its order."""
    from eqsat_layout.passes.evaluate import be_ready
    from eqsat_layout.planning.pipeline import choose
    from eqsat_layout.system.collector import collector_paused
    from eqsat_layout.system.workers import workers
    from eqsat_layout.targets.lowering import lower, prepared
    from eqsat_layout.targets.registry import target
    from eqsat_layout.targets.version import source_digest

    own = target()
    marks: list[tuple[str, float]] = []

    def begins(stage: str) -> None:
        marks.append((stage, time.perf_counter()))

    with collector_paused():
        begins("prepare")
        workers().start(be_ready, partial(source_digest, own.code))
        plain = prepared(mod)
        begins("plan")
        choice = choose(plain, own, {})
        begins("emit")
        module = choice.tir_module
        lower(module, own, progress=begins)
        begins("end")
    return {stage: after - at for (stage, at), (_, after) in pairwise(marks)}


def in_one_go(mod: Any) -> dict[str, float]:
    """The seconds of compile itself, planning not imported before."""
    import eqsat_layout

    start = time.perf_counter()
    eqsat_layout.compile(mod)
    return {"compile": time.perf_counter() - start}


def planned(mod: Any) -> dict[str, float]:
    """The seconds of the first plan of a process, imported before."""
    from eqsat_layout import plan

    start = time.perf_counter()
    plan(mod)
    return {"plan alone": time.perf_counter() - start}


HOW = {"by_stage": by_stage, "in_one_go": in_one_go, "planned": planned}


def _module(model: str) -> Any:
    from bench.networks import real

    return real.load(model, "onnx").module


def _measured(model: str, how: str, cache: str, bytecode: str) -> dict[str, float]:
    environment = {**os.environ, "EQSAT_LAYOUT_CACHE": cache, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "bench.planning.compile", "--one", model, how]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=list(MODELS))
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, how = options.one
        print(json.dumps(HOW[how](_module(model))))
        return
    table = Table(title=f"seconds to compile, {len(os.sched_getaffinity(0))} cores")
    for name in ("network", *STAGES, "in one go", "again", "plan alone"):
        table.add_column(name, justify="left" if name == "network" else "right")
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as bytecode:
        for model in options.model:
            with console.status(model), tempfile.TemporaryDirectory() as stages, tempfile.TemporaryDirectory() as whole:
                cold = _measured(model, "by_stage", stages, bytecode)
                once, again = (_measured(model, "in_one_go", whole, bytecode)["compile"] for _ in range(2))
                alone = _measured(model, "planned", stages, bytecode)["plan alone"]
            seconds = [*(cold.get(stage, 0.0) for stage in STAGES), once, again, alone]
            table.add_row(model, *(f"{value:.2f}" for value in seconds))
    console.print(table)


if __name__ == "__main__":
    main()
