"""What is measured of a bundle, step by step: each has things, and gives rows of each thing.

In: a :class:`Bundle`. Out: rows for JSON. A fault of the driver's is raised: what comes after it in the same process is
not to be believed. Nothing here needs TVM.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.cuda.bundles.data import Array, relative_error
from bench.cuda.bundles.items import CANDIDATES, CASE, CEILING, KERNEL, NETWORK, Item, median, on_device
from bench.cuda.bundles.peers import peers_of
from bench.results import flat
from eqsat_layout.targets.gpu.host.plan import HostFunction

Row = dict[str, Any]

_TOOLS: Final = ("memcheck", "racecheck", "synccheck")
_ERRORS: Final = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True)
class Bundle:
    """``turns``: how often each figure is taken; ``runs``: one after the other, each time."""

    folder: Path
    items: Sequence[Item]
    simulate: bool
    turns: int
    runs: int

    def of(self, kind: str) -> list[Item]:
        """The items of a kind."""
        return [item for item in self.items if item.kind == kind]


@dataclass(frozen=True)
class Step:
    """``things``: with a name each."""

    things: Callable[[Bundle], Sequence[Any]]
    rows: Callable[[Bundle, Any], Iterator[Row]]


def ceilings(bundle: Bundle, item: Item) -> Iterator[Row]:
    """What a copy moves, read and written, and what tensor cores do that are given nothing else to do."""
    program = item.program(bundle.folder)
    device = on_device(_of_one_block(program) if bundle.simulate else program, bundle.simulate)
    device()
    size = 1 << 16 if bundle.simulate else 1 << 30
    copies = [device.copy_seconds(size, bundle.runs) for _ in range(bundle.turns)]
    yield {"name": "copy", "device": device.name, "bytes_per_second": 2 * size / median(copies), "all": copies}
    seconds = [device.seconds(bundle.runs) for _ in range(bundle.turns)]
    yield {"name": item.name, "flops_per_second": item.said["flops"] / median(seconds), "all": seconds}


def _of_one_block(program: Any) -> Any:
    """For a rehearsal: the whole machine's work takes a simulator minutes."""

    def of_one(function: HostFunction) -> HostFunction:
        return replace(function, launches=tuple(replace(launch, groups=(1, 1, 1)) for launch in function.launches))

    functions = tuple(function.changed(of_one) for function in program.plan.functions)
    return replace(program, plan=replace(program.plan, functions=functions))


def checked(bundle: Bundle, item: Item) -> Iterator[Row]:
    """An item that is called, compared and timed."""
    device = on_device(item.program(bundle.folder), bundle.simulate)
    got = flat(device(*[one.array() for one in item.inputs]))
    row = compared(item, got, item.expected(bundle.folder))
    seconds = [device.seconds(bundle.runs) for _ in range(bundle.turns)]
    device.close()
    yield {"name": item.name, **item.said, **row, "seconds": median(seconds), "all": seconds}


def compared(item: Item, got: Sequence[Array], expected: Sequence[Array] | None) -> Row:
    """``right`` is ``None`` where it is not known what is."""
    if expected is None:
        return {"error": None, "right": None}
    error = relative_error(got, expected)
    return {"error": error, "right": error <= item.tolerance, "tolerance": item.tolerance}


def candidates(bundle: Bundle, item: Item) -> Iterator[Row]:
    """Plans of the same product, each with its model's seconds, timed in turns."""
    program = item.program(bundle.folder)
    device = on_device(program, bundle.simulate)
    inputs = [one.array() for one in item.inputs]
    entries = [function.name for function in program.plan.functions]
    results = {entry: flat(device(*inputs, entry=entry)) for entry in entries}
    taken: dict[str, list[float]] = {entry: [] for entry in entries}
    for _ in range(bundle.turns):
        for entry in entries:
            taken[entry].append(device.seconds(bundle.runs, entry) / item.said["repeats"])
    device.close()
    for entry in entries:
        error = relative_error(results[entry], results[entries[0]])
        said = {"error": error, "right": error <= item.tolerance, **item.said["plans"][entry]}
        yield {"name": item.name, "plan": entry, "seconds": median(taken[entry]), "all": taken[entry], **said}


def kernels(bundle: Bundle, item: Item) -> Iterator[Row]:
    """Seconds of a kernel by itself, each time on the same operands."""
    device = on_device(item.program(bundle.folder), bundle.simulate)
    device(*[one.array() for one in item.inputs])
    seconds = [device.seconds(bundle.runs) / item.said["repeats"] for _ in range(bundle.turns)]
    device.close()
    yield {"name": item.name, **item.said, "device": device.name, "seconds": median(seconds), "all": seconds}


def sanitizer(bundle: Bundle, tool: str) -> Iterator[Row]:
    """The cases once more under compute-sanitizer; where it is not installed, that is said."""
    program = shutil.which("compute-sanitizer")
    if program is None or bundle.simulate:
        yield {"name": tool, "errors": None, "why": "not installed" if program is None else "simulated"}
        return
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, "-m", "bench.cuda.run_bundle", "--folder", str(bundle.folder.resolve())]
        own += ["--turns", "1", "--runs", "1", "--steps", "cases", "--json", str(Path(folder) / "cases.json")]
        command = [program, "--tool", tool, "--target-processes", "all", *own]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    text = done.stdout + done.stderr
    yield {"name": tool, "errors": errors_of(text), "text": text[-4000:]}


def errors_of(text: str) -> int | None:
    """What a tool counts in all processes; ``None`` where it says nothing."""
    found = _ERRORS.findall(text)
    return sum(map(int, found)) if found else None


def peers(bundle: Bundle, item: Item) -> Iterator[Row]:
    """The same network by torch: :mod:`bundles.peers`."""
    yield from peers_of(item.said, bundle.turns, bundle.runs, on_cpu=bundle.simulate)


STEPS: Final[dict[str, Step]] = {
    "ceilings": Step(lambda bundle: bundle.of(CEILING), ceilings),
    "cases": Step(lambda bundle: bundle.of(CASE), checked),
    "sanitizer": Step(lambda _: _TOOLS, sanitizer),
    "networks": Step(lambda bundle: bundle.of(NETWORK), checked),
    "candidates": Step(lambda bundle: bundle.of(CANDIDATES), candidates),
    "kernels": Step(lambda bundle: bundle.of(KERNEL), kernels),
    "peers": Step(lambda bundle: bundle.of(NETWORK), peers),
}
"""In this order: what the others rest on comes first. Cases are each family of kernels beside float64, and products of
whole numbers, which are exact: they show the lanes."""
