"""What a bundle measures on a card: ``python -m bench.cuda.run_bundle --json result.json``, in its folder.

In: the bundle, a folder that :mod:`bench.cuda.programs` made. Out: JSON, written anew after each row, so that what is
cut off keeps what it has: the steps of :mod:`bench.cuda.bundles.steps`; ``--go-on`` takes up such a file. Each step has
a process of its own, and a new one after each fault: a kernel that fails takes the driver's context with it, but not
what comes next. ``--simulate`` puts the simulator in place of the card, by the same code: times are CPU seconds of the
simulator then, and of no worth.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cuda.bundles.items import MANIFEST, read_manifest
from bench.cuda.bundles.steps import STEPS, Bundle, Row
from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.targets.cuda.host.described import described_here, runs_on
from eqsat_layout.targets.cuda.host.device import answer_of, driver_of

_ROOT: Final = Path(__file__).resolve().parents[2]
"""Of the bundle, too, that this file lies in."""

_BEGINS: Final = "begins"
_ROW: Final = "row"


@dataclass(frozen=True)
class Worker:
    """The process of a step. ``patience``: seconds that a thing may take."""

    arguments: Sequence[str]
    patience: float

    def rows(self, step: str, begin: int, count: int, until: float) -> Iterator[Row]:
        """Of all things of a step; those that there is no time for say so, and those that fail."""
        while begin < count:
            last = begin
            for number, row in self._some(step, begin, until):
                yield {**row, "number": number}
                last = number
            begin = last + 1

    def _some(self, step: str, begin: int, until: float) -> Iterator[tuple[int, Row]]:
        """The rows of a process, with the numbers of their things, until it ends or fails."""
        command = [sys.executable, "-m", "bench.cuda.run_bundle", *self.arguments, "--steps", step]
        command += ["--begin", str(begin), "--seconds", str(until - time.time())]
        number, name = begin, step
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        process = subprocess.Popen(command, **pipes, cwd=_ROOT, start_new_session=True)
        hangs = threading.Event()
        said: list[str] = []
        errors = threading.Thread(target=lambda: said.extend(process.stderr or ()))
        errors.start()
        try:
            clock = self._clock(process, hangs)
            for line in process.stdout or ():
                clock.cancel()
                clock = self._clock(process, hangs)
                kind, _, text = line.partition(" ")
                if kind == _BEGINS:
                    number, name = json.loads(text)
                elif kind == _ROW:
                    yield number, json.loads(text)
            clock.cancel()
            code = process.wait()
            errors.join()
        finally:
            end(process)
        if code:
            why = f"nothing came for {self.patience:g} seconds" if hangs.is_set() else f"exit code {code}"
            yield number, {"name": name, "right": False, "fails": "\n".join((why, "".join(said)[-2000:])).strip()}

    def _clock(self, process: Any, hangs: threading.Event) -> threading.Timer:
        def give_up() -> None:
            hangs.set()
            end(process)

        clock = threading.Timer(self.patience, give_up)
        clock.daemon = True
        clock.start()
        return clock


def end(process: Any) -> None:
    """With all processes that it began: one that is left over would share the card with what is measured next."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
            if "fails" in row:
                return


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
    parser.add_argument("--go-on", action="store_true", help="keep the rows of the file, and measure what is not there")
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
    head["simulated"] = options.simulate
    try:
        known = kept_rows(options.json, head) if options.go_on else {}
        here = {} if options.simulate else device_here(str(head.get("arch", "")))
    except EqsatError as error:
        parser.error(str(error))
    arguments = ["--folder", str(options.folder.resolve()), "--turns", str(options.turns), "--runs", str(options.runs)]
    worker = Worker([*arguments, *(["--simulate"] if options.simulate else [])], options.patience)
    result: dict[str, Any] = {**head, "here": here, "steps": known}
    for step in steps:
        rows = known.setdefault(step, [])
        begin = 1 + max((row["number"] for row in rows), default=-1)
        for row in worker.rows(step, begin, len(STEPS[step].things(bundle)), until):
            rows.append(row)
            print(step, shown(row), flush=True)
            kept(result, options.json)
    return summed_up([row for rows in known.values() for row in rows])


def device_here(arch: str) -> Row:
    """The card, its driver and Python; :class:`TargetError` where there is none, or another one than code is for."""
    driver = driver_of()
    found, figures = described_here(driver=driver)
    if not runs_on(arch, found):
        raise TargetError(f"the bundle is for {arch}, and the card here is of {found}")
    version = int(answer_of(driver, "cuDriverGetVersion"))
    return {"arch": found, "figures": figures, "driver": version, "python": sys.version, "platform": sys.platform}


def kept_rows(path: Path, head: Row) -> dict[str, list[Row]]:
    """Those that a run has left, but for what it had no time for. :class:`EqsatError` for those of another bundle."""
    if not path.exists():
        return {}
    result = json.loads(path.read_text(encoding="utf-8"))
    if any(result.get(name) != value for name, value in head.items()):
        raise EqsatError(f"{path} is of another bundle")
    return {step: [row for row in rows if "late" not in row] for step, rows in result["steps"].items()}


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # what it began ends with it
    sys.exit(main())
