"""TVM's own tests as a suite: ``python -m bench.soundness.tvm_tests CHECKOUT [--out DIR] [--jobs N] [--only TEXT...]``.

``CHECKOUT`` is a work tree of apache/tvm of about the version that is installed. Every Relax module of its tests is
harvested, and goes through ``optimize``, also under other costs and under three desired layouts, and ``compile`` with
and without ``approx``, against stock TVM on whole numbers. ``DIR`` then holds the modules, ``record.jsonl`` with every
outcome, and ``rewrites``, where ours stand beside what the tests expect. What is there already is not done again. Last
it says what was left out, and why.
The exit code is 1 if something differs, crashes or hangs that ``tvm_suite/known.json`` does not list as TVM's own
fault, or if something is listed there that does not happen.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ.setdefault("EQSAT_LAYOUT_CACHE", os.path.join(tempfile.gettempdir(), "eqsat_layout_tvm_tests"))

from rich.console import Console

from bench.soundness.tvm_suite.attempt import outcome_of
from bench.soundness.tvm_suite.bounded import Bounded
from bench.soundness.tvm_suite.harvest import (
    Module,
    files_without_modules,
    harvest,
    left_out,
    lost_files,
    modules,
)
from bench.soundness.tvm_suite.record import (
    WRONG,
    Outcome,
    outdated,
    read_known,
    read_outcomes,
    table_of,
    unrun,
    write_outcome,
    wrong,
)
from bench.soundness.tvm_suite.rewrites import write_rewrites
from bench.soundness.tvm_suite.trial import WAYS
from eqsat_layout.system.workers import Workers

KNOWN = Path(__file__).parent / "tvm_suite" / "known.json"
_BRIEF = 10.0
"""Seconds of processor that a way may take in the first round. One module in forty takes minutes in stock TVM: they
come last."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "eqsat_layout_tvm_tests")
    parser.add_argument("--only", nargs="+", default=[""], help="modules with one of these in a name or in the digest")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th module")
    parser.add_argument("--jobs", type=int, default=1, help="modules that are tried at a time (1)")
    parser.add_argument("--way", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--written", action="store_true", help="only modules that tests write down")
    parser.add_argument("--again", action="store_true", help="also what the record has")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds of processor until a module hangs (60)")
    parser.add_argument("--rewrites", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--no-harvest", action="store_true", help="only what was harvested")
    options = parser.parse_args()
    console = Console(width=160)
    if not options.no_harvest:
        harvest(options.checkout, options.out / "modules", lambda text: console.print(text, highlight=False))
    found = [m for m in modules(options.out / "modules") if _is_asked(m, options)][:: options.every]
    suite = _Suite(options, console)
    for patience in sorted({min(_BRIEF, options.patience), options.patience}):
        suite.run(found, patience)
    if options.rewrites:
        write_rewrites(found, options.out / "rewrites", Workers(1, options.patience))
    is_part = options.only != [""] or options.every > 1 or options.written or options.way != list(WAYS)
    return _said(console, options.out, found, is_part)


class _Suite:
    """What was done, kept in the record."""

    def __init__(self, options: argparse.Namespace, console: Console):
        self._options, self._console = options, console
        self._record = options.out / "record.jsonl"
        self._done = {} if options.again else {(o.digest, o.way): o for o in read_outcomes(self._record)}
        self._writing = Lock()

    def run(self, modules: Sequence[Module], patience: float) -> None:
        """All of them, for so many seconds each."""
        waiting = iter(modules)
        with ThreadPoolExecutor(self._options.jobs) as threads:
            for job in [threads.submit(self._serve, waiting, patience, i) for i in range(self._options.jobs)]:
                job.result()

    def _serve(self, waiting: Iterator[Module], patience: float, number: int) -> None:
        process = Bounded(patience)  # of its own: it keeps what stock TVM said of its module
        for module in waiting:
            self._try(module, process, is_last=patience == self._options.patience, number=number)

    def _try(self, module: Module, process: Bounded, *, is_last: bool, number: int) -> None:
        digest = module.path.stem
        for way in dict.fromkeys(["stock", *self._options.way]):
            if (digest, way) in self._done:
                continue
            stock = self._done.get((digest, "stock"))
            outcome, is_late = outcome_of(process, module, way, stock.lost if stock else 0, number)
            if is_late and not is_last:
                return
            with self._writing:
                self._done[digest, way] = outcome
                write_outcome(self._record, outcome)
                if outcome.kind in WRONG:
                    _say(self._console, outcome)


def _is_asked(module: Module, options: argparse.Namespace) -> bool:
    if options.written and not module.is_written:
        return False
    return any(text in name for text in options.only for name in (module.path.stem, *module.names))


def _say(console: Console, outcome: Outcome) -> None:
    text = f"{outcome.digest} {outcome.name}, {outcome.way}: {outcome.kind}: {outcome.text}"
    console.print(text, markup=False)


def _said(console: Console, out: Path, found: Sequence[Module], is_part: bool) -> int:
    digests = {module.path.stem for module in found}
    outcomes = [o for o in read_outcomes(out / "record.jsonl") if o.digest in digests]
    known = read_known(KNOWN)
    _say_what_is_missing(console, out / "modules")
    new, old = list(wrong(outcomes, known)), list(outdated(outcomes, known, is_part=is_part))
    for outcome in new:
        _say(console, outcome)
    for text in old:
        console.print(f"listed, but does not happen: {text}", markup=False)
    console.print(unrun(outcomes))
    times = sum(len(module.names) for module in found)
    console.print(f"{len(digests)} modules, none equal to another in structure: tests have them {times} times")
    console.print(table_of(outcomes, known, WAYS, len(digests)))
    return 1 if new or old else 0


def _say_what_is_missing(console: Console, folder: Path) -> None:
    for file, why in lost_files(folder):
        console.print(f"lost: {file}: {why}", markup=False)
    kinds = defaultdict[str, list[tuple[str, list[str]]]](list)
    for why, what in left_out(folder):
        kinds[why.partition(":")[0]].append((why, what))
    for those in kinds.values():
        count, (why, what) = sum(len(what) for _, what in those), those[0]
        console.print(f"left out: {count}, the first {what[0]}: {why}", markup=False)
    if empty := files_without_modules(folder):
        console.print(f"no module in {len(empty)} files that speak of Relax: {', '.join(empty)}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
