"""For the test suites of people who write rules."""

from __future__ import annotations

from pathlib import Path


def assert_rules_sound(*files: str | Path, seconds: float | None = None, cases: int = 1000, seed: int = 0) -> None:
    """Fuzzes the rules in ``files`` beside those of the package; AssertionError with the smallest counterexamples.

    A rule that can't be fuzzed fails too. ``seconds``: how long, instead of until every rule had ``cases`` instances or
    ten seconds are over.
    Raises :class:`~eqsat_layout.errors.RuleError` for a file that can't be read.
    """
    from eqsat_layout.egraph.rules import rule_files
    from eqsat_layout.soundness.rules.fuzzer import AT_MOST, Effort, fuzz_rules

    chosen = {str(Path(file)) for file in files}
    report = fuzz_rules(
        rule_files(files),
        Effort(seconds=seconds, cases=cases, at_most=AT_MOST),
        seed,
        only=lambda rule: rule.file in chosen,
    )
    found = [r.counterexample.text for r in report.rules if r.counterexample is not None]
    found += [f"{r.rule}: {r.trouble}" for r in report.rules if r.trouble]
    found += [*report.unread, *report.gaps, *report.wrong_answers, *report.crashes, *report.false_merges]
    assert not found, "\n\n".join(found)
