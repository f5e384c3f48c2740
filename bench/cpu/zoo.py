"""Many architectures beside ONNX Runtime and OpenVINO: ``python -m bench.cpu.zoo [NAME ...] [--family NAME ...]``.

Each is compiled once into ``--folder``; what is there and was made by the same sources is used again. Engines take
turns in one process per architecture; printed are the better peer's time over ours, sorted, the most memory that a
process has that opens the network and runs it, and for the worst (``--worst N``) the kernels that take longest, of all
three. A third of the architectures, by the hash of the name, is
kept back: only ``--kept-back`` runs these, and only these. Processor time with one thread, which others on the machine
disturb least; with more threads wall time. Needs the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.cpu.zoo_process import OWN, ROUNDS, Files
from bench.networks.architectures.families import ARCHITECTURES, is_kept_back
from bench.processes import ROOT, environment

PEERS = ("ONNX Runtime", "OpenVINO")
COMMAND = "from eqsat_layout.cli.main import main; main()"
LIMIT = 1800
"""Seconds for one step of one architecture."""
KERNELS = 6
"""Of each engine, in the table of the worst."""
TOLERANCE = 1e-3
WIDTH = 170


def main() -> None:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any] | str] = {}
    for name in options.names:
        with console.status(name):
            found[name] = _measured(name, options)
        _say(name, found[name], console)
    _report(found, options, console)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    ratios = {name: own["ratio"] for name, own in found.items() if isinstance(own, dict)}
    for name in sorted(ratios, key=lambda name: ratios[name])[: options.worst]:
        _report_kernels(name, _answer("profile", name, options), console)
    if any(isinstance(own, str) or not own["difference"] <= TOLERANCE for own in found.values()):
        raise SystemExit(1)


def _measured(name: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """Its figures, or why there are none."""
    try:
        _answer("prepare", name, options)
        seconds = _compiled(name, options)
        memory = {engine: _answer("memory", name, options, "--engine", engine) for engine in (OWN, *PEERS)}
        return _answer("turns", name, options) | {"compile seconds": seconds, "memory": memory}
    except _StepError as error:
        return str(error)


class _StepError(Exception):
    """A step that failed; its text is the last line that the process wrote."""


def _compiled(name: str, options: argparse.Namespace) -> float | None:
    """Seconds of a compilation, unless the library is there and the same sources made it."""
    files = Files(options.folder, name)
    stamp = files.library.with_suffix(".stamp")
    own = f"{_sources()} {options.threads}"
    if files.library.exists() and stamp.exists() and stamp.read_text() == own:
        return None
    start = time.perf_counter()
    _run([sys.executable, "-c", COMMAND, "compile", str(files.onnx), "-o", str(files.library)], options)
    stamp.write_text(own)
    return time.perf_counter() - start


@cache
def _sources() -> str:
    """A digest of all that plans and kernels are made by."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.glob("eqsat_layout/**/*.py"), *ROOT.glob("rules/**/*.egg")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _answer(what: str, name: str, options: argparse.Namespace, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.cpu.zoo_process", what, "--name", name]
    command += ["--folder", str(options.folder), "--threads", str(options.threads), "--rounds", str(options.rounds)]
    command += more
    found: dict[str, Any] = json.loads(_run(command + ["--wall"] * _is_wall(options), options))
    return found


def _is_wall(options: argparse.Namespace) -> bool:
    return bool(options.threads > 1)


def _run(command: Sequence[str], options: argparse.Namespace) -> str:
    env = environment(options.threads)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
    except subprocess.TimeoutExpired as error:
        raise _StepError(f"not done after {LIMIT} s") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise _StepError((lines or [f"exit code {done.returncode}"])[-1][:200])
    return done.stdout


# ---- report ------------------------------------------------------------------------------------------------------


def _say(name: str, own: Mapping[str, Any] | str, console: Console) -> None:
    figure = f"[red]{own}[/]" if isinstance(own, str) else f"{own['ratio']:.2f}"
    console.print(f"{name}: {figure}", highlight=False)


def _report(found: Mapping[str, Mapping[str, Any] | str], options: argparse.Namespace, console: Console) -> None:
    table = Table(title="the better peer's time over ours", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("architecture", no_wrap=True)
    table.add_column("family", no_wrap=True)
    for column in ("ratio", f"{OWN} ms", *(f"{peer} ms" for peer in PEERS), "difference", "MiB", "of ONNX Runtime's"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = {name: own for name, own in found.items() if not isinstance(own, str)}
    for name, own in sorted(rows.items(), key=lambda item: item[1]["ratio"]):
        ratio, taken = own["ratio"], own["milliseconds"]
        batch = ARCHITECTURES[name].batch
        cells = [f"[bold red]{ratio:.2f}[/]" if ratio < 1 else f"{ratio:.2f}"]
        cells += [f"{taken[engine]:.3g}" for engine in (OWN, *PEERS)]
        off = f"{own['difference']:.0e}"
        cells.append(off if own["difference"] <= TOLERANCE else f"[bold red]{off}[/]")
        own_memory, other = (own["memory"][engine]["mebibytes"] for engine in (OWN, PEERS[0]))
        cells += [f"{own_memory:.0f}", f"{own_memory / other:.2f}"]
        table.add_row(name + f" x{batch}" * (batch > 1), ARCHITECTURES[name].family, *cells)
    console.print(table)
    for name, reason in found.items():
        if isinstance(reason, str):
            console.print(f"[red]{name}: {reason}[/]", highlight=False)
    ratios = [own["ratio"] for own in rows.values()]
    if ratios:
        slower = sum(ratio < 1 for ratio in ratios)
        console.print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, {slower} of {len(ratios)} below 1")
    clock = "wall time" if _is_wall(options) else "processor time"
    part = "kept back" if options.kept_back else "not kept back"
    load = os.getloadavg()[0]
    console.print(
        f"[dim]{part}; medians of {options.rounds} turns, {clock}, {options.threads} threads, load {load:.1f}[/]",
        highlight=False,
    )


def _report_kernels(name: str, kernels: Mapping[str, Sequence[tuple[str, float]]], console: Console) -> None:
    table = Table(title=f"{name}: kernels that take longest", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("us", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("kernel and its operands", no_wrap=True)
    for engine, own in kernels.items():
        total = sum(taken for _, taken in own)
        table.add_row(f"{total:.0f}", "", f"[bold]{engine}[/], {len(own)} kernels")
        for text, taken in own[:KERNELS]:
            table.add_row(f"{taken:.0f}", f"{taken / total:.0%}", f"  {text}")
    console.print(table, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    families = list(dict.fromkeys(own.family for own in ARCHITECTURES.values()))
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures; default: all that are not kept back")
    parser.add_argument("--family", nargs="+", choices=families, metavar="NAME", help=f"of {', '.join(families)}")
    parser.add_argument("--kept-back", action="store_true", help="those that are kept back, and only these")
    parser.add_argument("--folder", type=Path, required=True, help="for what is made once: gigabytes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="kernels of so many, the worst first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ARCHITECTURES]
    if unknown:
        parser.error(f"no architecture of the zoo: {', '.join(unknown)}")
    part = [name for name in ARCHITECTURES if is_kept_back(name) == options.kept_back]
    left_out = [name for name in options.names if name not in part]
    if left_out:
        parser.error(f"{', '.join(left_out)}: kept back, or not; see --kept-back")
    chosen = [name for name in part if not options.family or ARCHITECTURES[name].family in options.family]
    options.names = [name for name in chosen if not options.names or name in options.names]
    options.folder = options.folder.resolve()
    return options


if __name__ == "__main__":
    main()
