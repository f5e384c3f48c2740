"""Wrong rules and right ones, each fuzzed alone: ``python -m bench.soundness.bad_rules [FILE...]``.

Those of ``tests/soundness/bad_rules`` must be caught, those of ``tests/soundness/sound_rules`` must not. Prints which
are missed or accused, and how long the longest took; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

os.environ.setdefault("TVM_NUM_THREADS", "1")

from eqsat_layout.soundness.rules.corpus import CorpusRule, Outcome, cases_in, judge_case

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "soundness"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="by default those of both folders")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    files = options.files or sorted([*(CORPUS / "bad_rules").glob("*.egg"), *(CORPUS / "sound_rules").glob("*.egg")])
    cases = [case for file in files for case in cases_in(file)][:: options.every]
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):  # a process that dies takes its pool along
        for outcome in _judged(cases[len(outcomes) :], options.seed, options.jobs):
            outcomes.append(outcome)
            print(f"{len(outcomes)} of {len(cases)}: {outcome}", file=sys.stderr, flush=True)
    bad = [o for o in outcomes if Path(o.case.file).parent.name != "sound_rules"]
    sound = [o for o in outcomes if o not in bad]
    failed = _print_all("wrong rules", "missed", bad, [o for o in bad if not o.caught])
    failed += _print_all("right rules", "accused", sound, [o for o in sound if not o.is_clean])
    return 1 if failed else 0


def _judged(cases: Sequence[CorpusRule], seed: int, jobs: int) -> Iterator[Outcome]:
    """One outcome after the other, until a process dies."""
    context = multiprocessing.get_context("spawn")  # threads of TVM and egglog do not live on in a fork
    with ProcessPoolExecutor(jobs, context) as pool:
        for case, work in [(case, pool.submit(judge_case, case, seed=seed)) for case in cases]:
            try:
                yield work.result()
            except Exception as error:  # a fault of the fuzzer: the rest is judged all the same
                yield Outcome(case, caught=False, said=f"{type(error).__name__}: {error}", seconds=0.0)
                if isinstance(error, BrokenProcessPool):
                    return


def _print_all(what: str, wrong: str, outcomes: list[Outcome], failed: list[Outcome]) -> int:
    if outcomes:
        slow = max(outcomes, key=lambda o: o.seconds)
        seconds = sum(o.seconds for o in outcomes)
        print(
            f"{len(outcomes)} {what}: {len(failed)} {wrong}; {seconds:.0f} s, longest {slow.seconds:.1f} s: {slow.case}"
        )
    for outcome in failed:
        print(f"  {wrong}: {outcome.case}: {outcome.said.splitlines()[0] if outcome.said else 'ok'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
