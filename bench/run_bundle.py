"""What a bundle measures on a card: ``python run_bundle.py --json result.json``, in the folder that cuda.py made.

In: the bundle that this file lies in. Out: JSON, written anew after each figure, so that what is cut off keeps what it
has. The steps: ceilings of the card, every family of kernels against numbers of float64, compute-sanitizer over those
where it is installed, candidates in turns, whole networks as CUDA graphs, peers where torch is. ``--simulate`` puts the
simulator in place of the card, by the same code: times are CPU seconds of the simulator then, and of no worth.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cuda_data import Array, relative_error
from cuda_items import CANDIDATES, CASE, CEILING, NETWORK, Item, leaves, median, on_device, read_manifest
from cuda_peers import peers_of

from eqsat_layout.errors import EqsatError

Row = dict[str, Any]

_HERE: Final = Path(__file__).resolve().parent
_TOOLS: Final = ("memcheck", "racecheck", "synccheck")
_ERRORS: Final = re.compile(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)")


@dataclass
class Bundle:
    """``turns``: how often each figure is taken; ``runs``: one after the other, each time."""

    folder: Path
    head: dict[str, Any]
    items: Sequence[Item]
    simulate: bool
    turns: int
    runs: int
    until: float
    late: list[str] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Item]:
        """The items of a kind, as long as there is time."""
        for item in self.items:
            if item.kind == kind and self.has_time(item.name):
                yield item

    def has_time(self, name: str) -> bool:
        """Else ``name`` is among those that came too late."""
        if time.monotonic() > self.until:
            self.late.append(name)
            return False
        return True


def ceilings(bundle: Bundle) -> Iterator[Row]:
    """What a copy moves, read and written, and what tensor cores do that are given nothing else to do."""
    for item in bundle.of(CEILING):
        program = item.program(bundle.folder)
        device = on_device(program, bundle.simulate)
        device()
        size = 1 << 16 if bundle.simulate else 1 << 30
        copies = [device.copy_seconds(size, bundle.runs) for _ in range(bundle.turns)]
        yield {"name": "copy", "device": device.name, "bytes_per_second": 2 * size / median(copies), "all": copies}
        seconds = [device.seconds(bundle.runs) for _ in range(bundle.turns)]
        yield {"name": item.name, "flops_per_second": item.said["flops"] / median(seconds), "all": seconds}
        device.close()


def cases(bundle: Bundle) -> Iterator[Row]:
    """Each family: results beside those of float64; whole numbers, whose products are exact, show the lanes."""
    for item in bundle.of(CASE):
        yield checked(bundle, item)


def networks(bundle: Bundle) -> Iterator[Row]:
    """Each network as one graph: is it right, and how long does it take."""
    for item in bundle.of(NETWORK):
        yield checked(bundle, item)


def checked(bundle: Bundle, item: Item) -> Row:
    """An item that is called, compared and timed; :class:`EqsatError` of the driver is a row, too."""
    row: Row = {"name": item.name, **item.said}
    try:
        program = item.program(bundle.folder)
        device = on_device(program, bundle.simulate)
        got = list(leaves(device(*[one.array() for one in item.inputs])))
        row |= compared(item, got, item.expected(bundle.folder))
        seconds = [device.seconds(bundle.runs) for _ in range(bundle.turns)]
        row |= {"seconds": median(seconds), "all": seconds}
        device.close()
    except EqsatError as error:
        row |= {"right": False, "fails": str(error)}
    return row


def compared(item: Item, got: Sequence[Array], expected: Sequence[Array] | None) -> Row:
    """``right`` is ``None`` where it is not known what is."""
    if expected is None:
        return {"error": None, "right": None}
    error = relative_error(got, expected)
    return {"error": error, "right": error <= item.tolerance, "tolerance": item.tolerance}


def candidates(bundle: Bundle) -> Iterator[Row]:
    """Plans of the same product, each with its model's seconds, timed in turns."""
    for item in bundle.of(CANDIDATES):
        program = item.program(bundle.folder)
        device = on_device(program, bundle.simulate)
        inputs = [one.array() for one in item.inputs]
        entries = [function.name for function in program.plan.functions]
        results = {entry: list(leaves(device(*inputs, entry=entry))) for entry in entries}
        taken: dict[str, list[float]] = {entry: [] for entry in entries}
        for _ in range(bundle.turns):
            for entry in entries:
                taken[entry].append(device.seconds(bundle.runs, entry) / item.said["repeats"])
        for entry in entries:
            error = relative_error(results[entry], results[entries[0]])
            said = {"error": error, "right": error <= item.tolerance, **item.said["plans"][entry]}
            yield {"name": item.name, "plan": entry, "seconds": median(taken[entry]), "all": taken[entry], **said}
        device.close()


def sanitizer(bundle: Bundle) -> Iterator[Row]:
    """The cases once more under compute-sanitizer, tool by tool; where it is not installed, that is said."""
    program = shutil.which("compute-sanitizer")
    if program is None or bundle.simulate:
        yield {"name": "compute-sanitizer", "errors": None, "why": "not installed" if program is None else "simulated"}
        return
    for tool in _TOOLS:
        if not bundle.has_time(tool):
            return
        with tempfile.TemporaryDirectory() as folder:
            own = [sys.executable, str(Path(__file__)), "--steps", "cases", "--turns", "1", "--runs", "1"]
            command = [program, "--tool", tool, *own, "--json", str(Path(folder) / "cases.json")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        found = _ERRORS.search(text)
        yield {"name": tool, "errors": int(found[1]) if found else None, "text": text[-4000:]}


def peers(bundle: Bundle) -> Iterator[Row]:
    """The same networks by torch: :mod:`cuda_peers`."""
    for item in bundle.of(NETWORK):
        yield from peers_of(item.said, bundle.turns, bundle.runs, on_cpu=bundle.simulate)


STEPS: Final[dict[str, Callable[[Bundle], Iterator[Row]]]] = {
    one.__name__: one for one in (ceilings, cases, sanitizer, networks, candidates, peers)
}
"""In this order: what the others rest on comes first."""


def main(given: Sequence[str] | None = None) -> int:
    """0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=_HERE, help="the bundle, if it is not where this file is")
    parser.add_argument("--json", type=Path, default=Path("bundle.json"), help="a file for the rows")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of %(default)s")
    parser.add_argument("--turns", type=int, default=10, help="how often each figure is taken")
    parser.add_argument("--runs", type=int, default=20, help="one after the other, each time")
    parser.add_argument("--seconds", type=float, default=540.0, help="nothing new is begun after so many")
    parser.add_argument("--simulate", action="store_true", help="the simulator in place of the card")
    options = parser.parse_args(given)
    steps = options.steps.split(",")
    for step in steps:
        if step not in STEPS:
            parser.error(f"there is no step {step!r}; there are {', '.join(STEPS)}")
    head, items = read_manifest(options.folder)
    until = time.monotonic() + options.seconds
    bundle = Bundle(options.folder, head, items, options.simulate, options.turns, options.runs, until)
    result: dict[str, Any] = {**head, "simulated": options.simulate, "steps": {}, "late": bundle.late}
    for step in steps:
        result["steps"][step] = []
        for row in STEPS[step](bundle):
            result["steps"][step].append(row)
            print(step, shown(row), flush=True)
            kept(result, options.json)
    kept(result, options.json)
    rows = [row for step in result["steps"].values() for row in step]
    wrong = [row["name"] for row in rows if row.get("right") is False or row.get("errors")]
    print(f"{len(rows)} rows; wrong: {', '.join(wrong) or 'none'}; too late: {', '.join(bundle.late) or 'none'}")
    return 1 if wrong else 0


def shown(row: Row) -> str:
    """On one line; lists are for the file."""
    return " ".join(f"{key}={_short(value)}" for key, value in row.items() if isinstance(value, str | float | int))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:60].replace("\n", " ")


def kept(result: Row, path: Path) -> None:
    """The file is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(result, indent=1), encoding="utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main())
