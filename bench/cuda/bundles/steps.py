"""What is measured of a bundle, step by step: each has things, and gives rows of each thing.

In: a :class:`Bundle`. Out: rows for JSON. A fault of the driver's is raised: what comes after it in the same process is
not to be believed. Nothing here needs TVM.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.cuda.bundles.data import Array, relative_error
from bench.cuda.bundles.items import CANDIDATES, CASE, CEILING, KERNEL, NETWORK, Item, median, on_device
from bench.cuda.bundles.peers import PEERS, peer_of
from bench.results import flat
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.gpu.host.plan import HostFunction, Launch

Row = dict[str, Any]

_ROOT: Final = Path(__file__).parents[3]
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
    """``things``: with a name each. A row with ``fails`` is the last of its process."""

    things: Callable[[Bundle], Sequence[Any]]
    rows: Callable[[Bundle, Any], Iterator[Row]]


def ceilings(bundle: Bundle, item: Item) -> Iterator[Row]:
    """What a copy moves, read and written, and what tensor cores do that are given nothing else to do."""
    program = item.program(bundle.folder)
    if bundle.simulate:
        program = _with_launches(program, lambda some: tuple(replace(one, groups=(1, 1, 1)) for one in some))
    device = on_device(program, bundle.simulate)
    device()
    size = 1 << 16 if bundle.simulate else 1 << 30
    copies = [device.copy_seconds(size, bundle.runs) for _ in range(bundle.turns)]
    yield {"name": "copy", "device": device.name, "bytes_per_second": 2 * size / median(copies), "all": copies}
    seconds = [device.seconds(bundle.runs) for _ in range(bundle.turns)]
    yield {"name": item.name, "flops_per_second": item.said["flops"] / median(seconds), "all": seconds}


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
    program, repeats = _repeated(bundle, item)
    device = on_device(program, bundle.simulate)
    inputs = [one.array() for one in item.inputs]
    entries = [function.name for function in program.plan.functions]
    results = {entry: flat(device(*inputs, entry=entry)) for entry in entries}
    taken: dict[str, list[float]] = {entry: [] for entry in entries}
    for _ in range(bundle.turns):
        for entry in entries:
            taken[entry].append(device.seconds(bundle.runs, entry) / repeats)
    device.close()
    for entry in entries:
        error = relative_error(results[entry], results[entries[0]])
        said = {"error": error, "right": error <= item.tolerance, **item.said["plans"][entry]}
        yield {
            "name": item.name,
            "kernel": item.said["kernel"],
            "plan": entry,
            "seconds": median(taken[entry]),
            "all": taken[entry],
            **said,
        }


def kernels(bundle: Bundle, item: Item) -> Iterator[Row]:
    """Seconds of a kernel by itself, each time on the same operands."""
    program, repeats = _repeated(bundle, item)
    device = on_device(program, bundle.simulate)
    device(*[one.array() for one in item.inputs])
    seconds = [device.seconds(bundle.runs) / repeats for _ in range(bundle.turns)]
    device.close()
    yield {"name": item.name, **item.said, "device": device.name, "seconds": median(seconds), "all": seconds}


def _repeated(bundle: Bundle, item: Item) -> tuple[CudaProgram, int]:
    """A program that launches the same several times over, and how often: in a rehearsal once."""
    program, repeats = item.program(bundle.folder), int(item.said["repeats"])
    if not bundle.simulate:
        return program, repeats
    return _with_launches(program, lambda some: some[: len(some) // repeats]), 1


def _with_launches(program: CudaProgram, change: Callable[[Sequence[Launch]], Sequence[Launch]]) -> CudaProgram:
    """For a rehearsal: what keeps a card busy takes a simulator minutes."""

    def changed(function: HostFunction) -> HostFunction:
        return replace(function, launches=tuple(change(function.launches)))

    functions = tuple(function.changed(changed) for function in program.plan.functions)
    return replace(program, plan=replace(program.plan, functions=functions))


def sanitizer(bundle: Bundle, tool: str) -> Iterator[Row]:
    """The cases once more under compute-sanitizer; where it is not installed, that is said."""
    program = shutil.which("compute-sanitizer")
    if program is None or bundle.simulate:
        yield {"name": tool, "errors": None, "why": "not installed" if program is None else "simulated"}
        return
    own = [sys.executable, "-m", "bench.cuda.run_bundle", "--folder", str(bundle.folder.resolve())]
    own += ["--turns", "1", "--runs", "1", "--steps", "cases", "--begin", "0"]  # all in the one process that is watched
    done = subprocess.run([program, "--tool", tool, *own], capture_output=True, text=True, check=False, cwd=_ROOT)
    text = done.stdout + done.stderr
    errors = errors_of(text)
    why = {"why": "it counts no errors"} if errors is None else {}
    yield {"name": tool, "errors": errors, **why, "text": text[-4000:]}


def errors_of(text: str) -> int | None:
    """What a tool counts in all processes; ``None`` where it says nothing."""
    found = _ERRORS.findall(text)
    return sum(map(int, found)) if found else None


@dataclass(frozen=True)
class PeerOfNetwork:
    """``peer``: one of :data:`PEERS`."""

    peer: str
    item: Item

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.item.name}"


def _peers_of_networks(bundle: Bundle) -> list[PeerOfNetwork]:
    """Peer by peer, the quickest first: one that takes minutes is behind the others of all networks."""
    return [PeerOfNetwork(peer, item) for peer in PEERS for item in bundle.of(NETWORK)]


def peers(bundle: Bundle, thing: PeerOfNetwork) -> Iterator[Row]:
    """The same network by torch or JAX: :mod:`bundles.peers`."""
    yield peer_of(thing.peer, thing.item.said, bundle.turns, bundle.runs, on_cpu=bundle.simulate)


STEPS: Final[dict[str, Step]] = {
    "ceilings": Step(lambda bundle: bundle.of(CEILING), ceilings),
    "cases": Step(lambda bundle: bundle.of(CASE), checked),
    "networks": Step(lambda bundle: bundle.of(NETWORK), checked),
    "candidates": Step(lambda bundle: bundle.of(CANDIDATES), candidates),
    "kernels": Step(lambda bundle: bundle.of(KERNEL), kernels),
    "peers": Step(_peers_of_networks, peers),
    "sanitizer": Step(lambda _: _TOOLS, sanitizer),
}
"""In this order: what the others rest on comes first, and what may hang comes last. Cases are each family of kernels
beside float64, and products of whole numbers, which are exact: they show the lanes."""
