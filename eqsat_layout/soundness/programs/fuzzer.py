"""The program fuzzer: random modules through ``optimize``, run before and after.

In: an effort and a seed. Out: a :class:`ProgramReport` with the smallest module found per failure. Every program has a
seed of its own, which is all that it takes to see it again: ``python -m eqsat_layout.soundness.programs.fuzzer SEED``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eqsat_layout.notes import STRICT_VARIABLE
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.jobs import run_jobs
from eqsat_layout.soundness.programs.outcomes import FAILED, ProgramReport, Progress
from eqsat_layout.soundness.programs.trial import check_program, program_of
from eqsat_layout.soundness.programs.tried import tried_for


def fuzz_programs(
    seconds: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    on_progress: Progress = lambda report, share: None,
    rules: Sequence[str | Path] = (),
    target: Any = None,
    exact: bool = False,
    guarded: bool = False,
) -> ProgramReport:
    """Fuzzes for so many ``seconds`` or programs (by default 100) in ``jobs`` processes; ``rules``: further files.

    ``target``: programs are compiled for it as a whole, and run on it (:mod:`.on_targets`) beside TVM's own code for
    the CPU; by default ``optimize`` alone is tried. :class:`TargetError` where there is no such target.
    ``guarded``: they are compiled for it, by default this CPU, and each of their kernels is called by itself between
    protected pages (:mod:`eqsat_layout.soundness.memory`).
    ``exact``: they are compiled for this CPU with ``approx=False``, and run on NaN, infinities and integers' ends, too.
    A process that dies or hangs is a failure of the program that it was at, and another one takes its place.
    """
    tried = tried_for(target, exact=exact, guarded=guarded)
    if seconds is None and cases is None:
        cases = 100
    return run_jobs(seconds, cases, seed, jobs, on_progress, tuple(rules), tried)


def main(given: Sequence[str]) -> int:
    """Checks the programs of seeds and prints what came of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--target", help="compiles for this one, too: a name, or JSON")
    parser.add_argument("--exact", action="store_true", help="compiles for this CPU with approx=False")
    parser.add_argument("--guarded", action="store_true", help="calls kernels between protected pages")
    options = parser.parse_args(given)
    is_json = options.target is not None and options.target.startswith("{")
    given_target = json.loads(options.target) if is_json else options.target
    target = tried_for(given_target, exact=options.exact, guarded=options.guarded)
    os.environ.setdefault(STRICT_VARIABLE, "1")  # as in the processes that found them
    failed = False
    for seed in options.seeds:
        outcome = check_program(Choices.of_seed(seed), seed, target=target)
        failed |= outcome.kind == FAILED
        print(outcome.program or program_of(Choices.of_seed(seed), seed, target).text())
        print(f"seed {seed}: {outcome.kind} {outcome.why} {outcome.text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
