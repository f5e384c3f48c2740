"""What a bundle measures on a card: ``python -m bench.cuda.run_bundle --json result.json``, in its folder.

In: the bundle, a folder that :mod:`bench.cuda.programs` made. Out: JSON, written anew after each row, so that what is
cut off keeps what it has: the steps of :mod:`bench.cuda.bundles.steps`. Each step has a process of its own, and a new
one after each fault: a kernel that fails takes the driver's context with it, but not what comes next. ``--simulate``
puts the simulator in place of the card, by the same code: times are CPU seconds of the simulator then, and of no worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cuda.bundles.items import MANIFEST, read_manifest
from bench.cuda.bundles.steps import STEPS, Bundle, Row

_ROOT: Final = Path(__file__).resolve().parents[2]
"""Of the bundle, too, that this file lies in."""

_BEGINS: Final = "begins"
_ROW: Final = "row"


@dataclass(frozen=True)
class Worker:
    """The process of a step. ``patience``: seconds that a thing may take."""

    arguments: Sequence[str]
    patience: float

    def rows(self, step: str, count: int, until: float) -> Iterator[Row]:
        """Of all things of a step; those that there is no time for say so, and those that fail."""
        begin = 0
        while begin < count:
            last = begin
            for number, row in self._some(step, begin, until):
                yield row
                last = number
            begin = last + 1

    def _some(self, step: str, begin: int, until: float) -> Iterator[tuple[int, Row]]:
        """The rows of a process, with the numbers of their things, until it ends or fails."""
        command = [sys.executable, "-m", "bench.cuda.run_bundle", *self.arguments, "--steps", step]
        command += ["--begin", str(begin), "--seconds", str(until - time.time())]
        number, name = begin, step
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT) as process:
            said: list[str] = []
            errors = threading.Thread(target=lambda: said.extend(process.stderr or ()))
            errors.start()
            clock = self._clock(process)
            for line in process.stdout or ():
                clock.cancel()
                clock = self._clock(process)
                kind, _, text = line.partition(" ")
                if kind == _BEGINS:
                    number, name = json.loads(text)
                elif kind == _ROW:
                    yield number, json.loads(text)
            clock.cancel()
            errors.join()
        if process.returncode:
            why = "".join(said)[-2000:] or f"exit code {process.returncode}"
            yield number, {"name": name, "right": False, "fails": why}

    def _clock(self, process: Any) -> threading.Timer:
        clock = threading.Timer(self.patience, process.kill)
        clock.daemon = True
        clock.start()
        return clock


def measured(bundle: Bundle, step: str, begin: int, until: float) -> None:
    """What the process of a step does: it says what it begins, and what it found."""
    for number, thing in enumerate(STEPS[step].things(bundle)[begin:], begin):
        name = getattr(thing, "name", thing)
        print(_BEGINS, json.dumps([number, name]), flush=True)
        if time.time() > until:
            print(_ROW, json.dumps({"name": name, "late": True}), flush=True)
            continue
        for row in STEPS[step].rows(bundle, thing):
            print(_ROW, json.dumps(row), flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=_ROOT, help="the bundle, if this file lies in none")
    parser.add_argument("--json", type=Path, default=Path("bundle.json"), help="a file for the rows")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of %(default)s")
    parser.add_argument("--turns", type=int, default=10, help="how often each figure is taken")
    parser.add_argument("--runs", type=int, default=20, help="one after the other, each time")
    parser.add_argument("--seconds", type=float, default=540.0, help="nothing new is begun after so many")
    parser.add_argument("--patience", type=float, default=240.0, help="seconds until something is taken to hang")
    parser.add_argument("--simulate", action="store_true", help="the simulator in place of the card")
    parser.add_argument("--begin", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    steps, until = options.steps.split(","), time.time() + options.seconds
    for step in steps:
        if step not in STEPS:
            parser.error(f"there is no step {step!r}; there are {', '.join(STEPS)}")
    if not (options.folder / MANIFEST).is_file():
        parser.error(f"{options.folder} is no bundle, or one that was not finished: there is no {MANIFEST}")
    head, items = read_manifest(options.folder)
    bundle = Bundle(options.folder, items, options.simulate, options.turns, options.runs)
    if options.begin is not None:
        measured(bundle, steps[0], options.begin, until)
        return 0
    arguments = ["--folder", str(options.folder.resolve()), "--turns", str(options.turns), "--runs", str(options.runs)]
    worker = Worker([*arguments, *(["--simulate"] if options.simulate else [])], options.patience)
    result: dict[str, Any] = {**head, "simulated": options.simulate, "steps": {}}
    for step in steps:
        rows = result["steps"][step] = []
        for row in worker.rows(step, len(STEPS[step].things(bundle)), until):
            rows.append(row)
            print(step, shown(row), flush=True)
            kept(result, options.json)
    return summed_up([row for rows in result["steps"].values() for row in rows])


def summed_up(rows: Sequence[Row]) -> int:
    """The last line, and the exit code."""
    wrong = [row["name"] for row in rows if row.get("right") is False or row.get("errors")]
    late = [row["name"] for row in rows if row.get("late")]
    print(f"{len(rows)} rows; wrong: {', '.join(wrong) or 'none'}; too late: {', '.join(late) or 'none'}")
    return 1 if wrong else 0


def shown(row: Row) -> str:
    """On one line; lists are for the file."""
    return " ".join(f"{key}={_short(value)}" for key, value in row.items() if isinstance(value, str | float | int))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[-100:].replace("\n", " ")


def kept(result: Row, path: Path) -> None:
    """The file is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(result, indent=1), encoding="utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main())
