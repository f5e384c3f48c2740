"""Soundness in numbers: ``python bench/soundness.py [--seconds 60] [--jobs N] [--no-mutants]``.

Fuzzes all rules of the package and proves them; then makes every one-token mutant of every rule and says how many are
caught by a counterexample, how many are sound all the same (z3 proves it), and lists the survivors. The exit code is 1
if a rule is wrong or a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("TVM_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import Effort, FuzzReport
from eqsat_layout.soundness.rules.jobs import fuzz_in_processes
from eqsat_layout.soundness.rules.mutation import Verdict, judge, mutants_of
from eqsat_layout.soundness.rules.prover import prove_all
from eqsat_layout.soundness.rules.rule_base import RuleBase, read_rule_base


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of fuzzing, and of fuzzing mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutants", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    console = Console()
    base = read_rule_base(rule_files())
    start = time.perf_counter()
    proved = sum(proof.proved for proof in prove_all(base))
    seconds = time.perf_counter() - start
    with console.status("fuzzing"):
        report = fuzz_in_processes(rule_files(), Effort(seconds=options.seconds), options.seed, jobs=options.jobs)
    console.print(rules_table(report, base, proved, seconds, options.jobs))
    if not options.mutants:
        return 0 if report.is_clean else 1
    start = time.perf_counter()
    with console.status("mutants"):
        verdict = mutants(base, options.seconds, options.seed)
    console.print(mutants_table(verdict, time.perf_counter() - start))
    for survivor in verdict.survivors:
        console.print(f"survives: {survivor}", style="red", highlight=False)
    return 0 if report.is_clean and not verdict.survivors else 1


def mutants(base: RuleBase, seconds: float, seed: int) -> Verdict:
    """What becomes of all mutants of all rules."""
    found = [mutant for rule in base.rules for mutant in mutants_of(rule, base)]
    return judge(base, found, seconds, seed)


def rules_table(report: FuzzReport, base: RuleBase, proved: int, seconds: float, jobs: int) -> Table:
    """Totals of the fuzzing."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("rules", f"{len(base.rules)}")
    table.add_row("proved from the meanings of relations", f"{proved} in {seconds:.1f} s")
    rate = report.instances / report.seconds
    table.add_row("instances", f"{report.instances:,}: {rate:,.0f} per second in {jobs} processes")
    table.add_row("models", f"{report.models:,}")
    table.add_row("answers of the host checked", f"{report.answers:,}")
    table.add_row("e-classes and rows compared, all rules together", f"{report.compared:,}")
    table.add_row("rules with a counterexample", f"{sum(r.failures > 0 for r in report.rules)}")
    table.add_row("rules without an instance", f"{sum(not r.instances for r in report.rules)}")
    wrong = len(report.wrong_answers) + len(report.false_merges) + len(report.crashes)
    table.add_row("wrong answers, false merges, crashes", f"{wrong}")
    return table


def mutants_table(verdict: Verdict, seconds: float) -> Table:
    """What became of the mutants."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    count = len(verdict.caught) + len(verdict.sound) + len(verdict.survivors)
    table.add_row("mutants", f"{count:,} in {seconds:.0f} s")
    table.add_row("sound all the same, by proof", f"{len(verdict.sound):,}")
    table.add_row("caught", f"{len(verdict.caught):,}")
    table.add_row("survivors", f"{len(verdict.survivors):,}")
    table.add_row("mutation score", f"{verdict.score:.1%}")
    return table


if __name__ == "__main__":
    sys.exit(main())
