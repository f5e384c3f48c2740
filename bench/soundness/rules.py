"""Soundness in numbers: ``python -m bench.soundness.rules [--seconds 60] [--jobs N] [--every 10] [--no-mutants]``.

Fuzzes all rules of the package and proves them; says for how many ops of Relax models have several choices of
attributes; reads the attacks of ``tests/attacks``; judges each so many-th of the wrong rules and of the right ones of
``tests/soundness`` (``--every 1``: all, an hour); then makes every one-token mutant of every rule and says how many are
caught by a counterexample, how many are sound all the same (z3 proves it), and lists the survivors. The exit code is 1
if a rule is wrong, an attack comes through, a wrong rule is missed, a right one accused, or a mutant survives.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TVM_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.corpus import Outcome, cases_in, judge_case
from eqsat_layout.soundness.rules.jobs import fuzz_in_processes
from eqsat_layout.soundness.rules.mutation import Verdict, judge, mutants_of
from eqsat_layout.soundness.rules.ops import usual_call
from eqsat_layout.soundness.rules.prover import prove_all
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import RuleBase, read_rule_base
from eqsat_layout.soundness.rules.schema import all_ops, has_attributes, vary

TESTS = Path(__file__).resolve().parents[2] / "tests"
KINDS = ("texts", "rules", "graphs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of fuzzing, and of fuzzing mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=10, help="of the wrong rules and the right ones")
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
    console.print(attributes_table())
    attacks = [attack for kind in KINDS for attack in attacked(kind)]
    console.print(attacks_table(attacks))
    bad, sound = (
        judged(TESTS / "soundness" / name, options.every, options.seed) for name in ("bad_rules", "sound_rules")
    )
    console.print(corpus_table(bad, sound))
    for outcome in (*(o for o in bad if not o.caught), *(o for o in sound if not o.is_clean)):
        console.print(str(outcome), style="red", highlight=False)
    is_clean = report.is_clean and all(o.caught for o in bad) and all(o.is_clean for o in sound)
    is_clean = is_clean and all(map(is_refused, attacks))
    if not options.mutants:
        return 0 if is_clean else 1
    start = time.perf_counter()
    with console.status("mutants"):
        verdict = mutants(base, options.seconds, options.seed)
    console.print(mutants_table(verdict, time.perf_counter() - start))
    for survivor in verdict.survivors:
        how = "survives, and matches nothing" if survivor in verdict.unmatched else "survives"
        console.print(f"{how}: {survivor}", style="red", highlight=False)
    return 0 if is_clean and not verdict.survivors else 1


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


def attributes_table() -> Table:
    """Of how many ops models hold several choices of attributes on the same operands."""
    drawn = {name: call for name in all_ops() if (call := usual_call(name)) is not None}
    told = [name for name in drawn if has_attributes(name)]
    varied = [name for name in told if vary(drawn[name], 1, random.Random(name), 1000)]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("ops that models can hold", f"{len(drawn)} of {len(all_ops())}")
    table.add_row("attributes varied", f"{len(varied)} of {len(told)} that have any")
    table.add_row("in no model", ", ".join(sorted(set(all_ops()) - set(drawn))))
    return table


def attacked(kind: str) -> list[dict[str, str]]:
    """What came of each attack of a kind, in a process that some are written to kill."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(TESTS / "attacks" / "watch.py"), kind, folder]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    ended = {line["name"]: line for line in lines if "name" in line}
    return [ended.get(line["starts"], {"outcome": "died", "seen": ""}) for line in lines if "starts" in line]


def is_refused(attack: dict[str, str]) -> bool:
    """By an error of ours, and nothing was run."""
    return attack["outcome"] in ("FileError", "RuleError") and not attack["seen"]


def attacks_table(attacks: list[dict[str, str]]) -> Table:
    """How many there are, and how many came through."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("attacks by texts, rules and graphs", f"{len(attacks)}")
    table.add_row("refused, and nothing run", f"{sum(map(is_refused, attacks))}")
    return table


def judged(folder: Path, every: int, seed: int) -> list[Outcome]:
    """Each so many-th case of the files in a folder."""
    cases = [case for file in sorted(folder.glob("*.egg")) for case in cases_in(file)]
    return [judge_case(case, seed=seed) for case in cases[::every]]


def corpus_table(bad: list[Outcome], sound: list[Outcome]) -> Table:
    """What the fuzzer says of rules that are known to be wrong or right."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("wrong rules caught", f"{sum(o.caught for o in bad)} of {len(bad)}")
    table.add_row("right rules without an alarm", f"{sum(o.is_clean for o in sound)} of {len(sound)}")
    table.add_row("seconds of the processor for the longest", f"{max(o.seconds for o in (*bad, *sound)):.1f}")
    return table


def mutants_table(verdict: Verdict, seconds: float) -> Table:
    """What became of the mutants."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    count = len(verdict.caught) + len(verdict.sound) + len(verdict.survivors)
    table.add_row("mutants", f"{count:,} in {seconds:.0f} s")
    table.add_row("sound all the same, by proof", f"{len(verdict.sound):,}")
    table.add_row("caught", f"{len(verdict.caught):,}")
    table.add_row("survivors", f"{len(verdict.survivors):,}, {len(verdict.unmatched):,} of which match nothing")
    table.add_row("mutation score", f"{verdict.score:.1%}")
    return table


if __name__ == "__main__":
    sys.exit(main())
