"""For the test suites of people who write rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat_layout.egraph.python_rules import PythonRule


def assert_rules_sound(
    *rules: str | Path | PythonRule, seconds: float | None = None, cases: int = 1000, seed: int = 0
) -> None:
    """Fuzzes rule files, and rules written in Python, beside those of the package.

    AssertionError with the smallest counterexamples.

    A rule that can't be fuzzed fails too. ``seconds``: how long, instead of until every rule had ``cases`` instances or
    was looked at in as many models as take some ten seconds.
    Raises :class:`~eqsat_layout.errors.RuleError` for a file that can't be read.
    """
    from eqsat_layout.egraph.python_rules import PythonRule
    from eqsat_layout.egraph.rules import rule_files
    from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
    from eqsat_layout.soundness.rules.pace import AT_MOST
    from eqsat_layout.soundness.rules.reports import Effort

    written = [rule if isinstance(rule, PythonRule) else Path(rule) for rule in rules]
    files = {str(path) for path in written if isinstance(path, Path)}
    commands = [rule.command for rule in written if isinstance(rule, PythonRule)]
    report = fuzz_rules(
        [*rule_files(), *written],
        Effort(seconds=seconds, cases=cases, at_most=AT_MOST),
        seed,
        only=lambda rule: rule.file in files or rule.command in commands,
    )
    found = [r.counterexample.text for r in report.rules if r.counterexample is not None]
    found += [f"{r.rule}: {r.trouble}" for r in report.rules if r.trouble]
    found += [*report.unread, *report.gaps, *report.wrong_answers, *report.crashes, *report.false_merges]
    assert not found, "\n\n".join(found)
