"""The commands ``fuzz`` and ``fuzz-programs``.

In: rule files, or how many programs. Out: a table on the console, counterexamples, and whether all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.soundness.rules.jobs import fuzz_in_processes
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport, RuleReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.system.sigterm import sigterm_exits


@dataclass(frozen=True)
class FuzzOptions:
    """What the command line was told."""

    files: Sequence[Path]
    effort: Effort
    seed: int
    jobs: int
    prove: bool


def run_fuzz(options: FuzzOptions, console: Console) -> bool:
    """Fuzzes, prints, and says whether every rule is sound as far as one can tell. Who stops it is told what was found
    until then."""
    paths = rule_files(options.files)
    only = list(options.files) or None
    proofs = _proofs(paths) if options.prove else {}
    report = FuzzReport([], options.seed)

    def tell() -> None:
        console.print(fuzz_summary(report, proofs))

    with _progress(console) as bar:
        task = bar.add_task("fuzz", total=1.0, instances="0")

        def note(found: FuzzReport, share: float) -> None:
            nonlocal report
            report = found
            bar.update(task, completed=min(share, 1.0), instances=f"{found.instances:,}")

        with _told_when_stopped(bar, lambda: tell() if report.models else None):
            report = fuzz_in_processes(paths, options.effort, options.seed, only, options.jobs, note)
    tell()
    return report.is_clean


def run_fuzz_programs(
    seconds: float | None,
    cases: int | None,
    seed: int,
    jobs: int,
    rules: Sequence[Path],
    console: Console,
    target: Any = None,
    exact: bool = False,
    guarded: bool = False,
) -> bool:
    """Fuzzes programs, prints, and says whether all came out right. Who stops it is told what was found until then."""
    from eqsat_layout.soundness.programs.fuzzer import fuzz_programs
    from eqsat_layout.soundness.programs.outcomes import ProgramReport

    report = ProgramReport(seed)

    def tell() -> None:
        console.print(str(report), highlight=False, soft_wrap=True)

    with _progress(console, "programs") as bar:
        task = bar.add_task("fuzz", total=1.0, instances="0")

        def note(found: ProgramReport, share: float) -> None:
            nonlocal report
            report = found
            bar.update(task, completed=min(share, 1.0), instances=f"{found.programs:,}")

        with _told_when_stopped(bar, lambda: tell() if report.programs else None):
            report = fuzz_programs(seconds, cases, seed, jobs, note, rules, target, exact, guarded)
    tell()
    return report.is_clean


@contextmanager
def _told_when_stopped(bar: Progress, tell: Callable[[], None]) -> Iterator[None]:
    """Whatever stops what is done here, SIGTERM too: ``tell`` says what was found until then."""
    with sigterm_exits():
        try:
            yield
        except BaseException:
            bar.stop()
            tell()
            raise


def fuzz_summary(report: FuzzReport, proofs: dict[tuple[str, int, str], str]) -> Group:
    """The table of rules, what was found, and the totals."""
    table = FittedTable(pad_edge=False)
    for heading in ("rule", "where", "instances", "proof", "result"):
        table.add_column(heading, justify="right" if heading == "instances" else "left")
    for rule in report.rules:
        where, proof = f"{Path(rule.rule.file).name}:{rule.rule.line}", proofs.get(_key(rule.rule), "not tried")
        table.add_row(rule.rule.name, where, f"{rule.instances:,}", proof, _verdict(rule))
    lines = [Text(f"\n{r.counterexample.text}") for r in report.rules if r.counterexample is not None]
    lines += [Text(f"\n{trouble}", style="red") for trouble in _troubles(report)]
    lines += [Text(f"\n{r.rule}: {remark}", style="yellow") for r in report.rules for remark in r.remarks]
    if report.attributes:
        same = [name for name, choices in sorted(report.attributes.items()) if choices < 2]
        varied = f"{len(report.attributes) - len(same)} of {len(report.attributes)}"
        but = f", not for {', '.join(same)}" if same else ""
        lines.append(Text(f"\nattributes varied for {varied} ops that have any{but}"))
    sound = sum(r.is_sound for r in report.rules)
    rate = report.instances / report.seconds if report.seconds else 0.0
    lines.append(
        Text(
            f"\n{sound} of {len(report.rules)} rules without a counterexample in {report.instances:,} instances; "
            f"{report.answers:,} answers of the host checked, "
            f"{report.compared:,} e-classes and rows compared after all rules ran together "
            f"({report.models} models, {report.least_models} or more for each of these rules, "
            f"{report.seconds:.0f} s, {rate:,.0f} instances per second, seed {report.seed})"
        )
    )
    return Group(table, *lines)


def _verdict(rule: RuleReport) -> Text:
    if rule.failures:
        return Text(f"UNSOUND: {rule.failures:,} counterexamples", style="bold red")
    if rule.trouble:
        return Text(rule.trouble, style="yellow")
    if not rule.instances:
        return Text("no instance until it was stopped", style="yellow")
    return Text(f"ok on {rule.instances:,} instances", style="green")


def _troubles(report: FuzzReport) -> list[str]:
    return [
        *(f"not fuzzed: {line}" for line in (*report.unread, *report.gaps)),
        *(f"a wrong answer: {line}" for line in report.wrong_answers[:10]),
        *(f"all rules together: {line}" for line in report.false_merges[:10]),
        *(f"a question that has no answer: {line}" for line in report.crashes[:10]),
    ]


def _proofs(paths: Sequence[Path]) -> dict[tuple[str, int, str], str]:
    try:
        from eqsat_layout.soundness.rules.prover import prove_all

        found = prove_all(read_rule_base(paths))
    except ImportError:  # z3 is a help, not a need
        return {}
    return {_key(proof.rule): proof.word for proof in found}


def _key(rule: Rule) -> tuple[str, int, str]:
    return rule.file, rule.line, rule.name


def _progress(console: Console, what: str = "instances") -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(f"{{task.fields[instances]}} {what}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
