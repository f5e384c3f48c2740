"""What comes of fuzzing rules: a report per rule and one of all, and how much work is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from eqsat_layout.egraph.expressions import Expr
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.counterexample import Counterexample


@dataclass
class RuleReport:
    """``instances`` checked; ``matches`` found; ``models`` in which it was looked for. ``trouble`` says why a rule
    could not be checked, or not in full; ``remarks`` how far one may trust that nothing was found; ``not_made`` why an
    op that it asks for could not be had, where nothing is claimed then; ``not_held``, for each of its wants, why the
    memory holds no such tensor, empty where it does in some instance."""

    rule: Rule
    matches: int = 0
    instances: int = 0
    failures: int = 0
    counterexample: Counterexample | None = None
    trouble: str = ""
    remarks: tuple[str, ...] = ()
    not_made: str = ""
    not_held: dict[Expr, str] = field(default_factory=dict)
    models: int = 0

    @property
    def is_sound(self) -> bool:
        """No instance failed and there were some."""
        return not self.failures and not self.trouble and self.instances > 0


@dataclass
class FuzzReport:
    """What came of it all.

    ``answers``: rows of the host checked; ``wrong_answers`` among them. ``compared``: e-classes and rows checked after
    all rules ran together; ``false_merges`` among them. ``crashes``: questions that the host could not answer.
    ``gaps``: questions that were never asked, and answers that can't be checked. ``attributes``: for each op that has
    any and is named by a rule, how many choices of them stood side by side.
    """

    rules: list[RuleReport]
    seed: int
    models: int = 0
    seconds: float = 0.0
    answers: int = 0
    wrong_answers: list[str] = field(default_factory=list)
    compared: int = 0
    false_merges: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        """Instances of all rules."""
        return sum(r.instances for r in self.rules)

    @property
    def least_models(self) -> int:
        """In how many models each rule was looked at, at the least, that is not known to be wrong."""
        return min((r.models for r in self.rules if not r.failures), default=0)

    @property
    def is_clean(self) -> bool:
        """Every rule was checked and none failed, alone or together."""
        trouble = self.unread or self.wrong_answers or self.false_merges or self.crashes or self.gaps
        return not trouble and all(r.is_sound for r in self.rules)


def in_file_order(reports: Iterable[RuleReport]) -> list[RuleReport]:
    """As the rules stand in their files."""
    return sorted(reports, key=lambda r: (r.rule.file, r.rule.line, r.rule.name))


def side_by_side(reports: Sequence[FuzzReport]) -> FuzzReport:
    """The reports on some rules of a file after the other as one."""
    rules = in_file_order(rule for report in reports for rule in report.rules)
    return merged_reports(reports, rules, sum(report.seconds for report in reports))


def merged_reports(reports: Sequence[FuzzReport], rules: list[RuleReport], seconds: float) -> FuzzReport:
    """What several reports say besides what they say of ``rules``, as one."""
    return replace(
        reports[0],
        rules=rules,
        models=sum(report.models for report in reports),
        seconds=seconds,
        answers=sum(report.answers for report in reports),
        wrong_answers=[line for report in reports for line in report.wrong_answers],
        compared=sum(report.compared for report in reports),
        false_merges=[line for report in reports for line in report.false_merges],
        crashes=list(dict.fromkeys(line for report in reports for line in report.crashes)),
        gaps=[gap for gap in reports[0].gaps if all(gap in report.gaps for report in reports)],
        attributes={name: max(r.attributes.get(name, 0) for r in reports) for r in reports for name in r.attributes},
    )


@dataclass(frozen=True)
class Effort:
    """When to stop: after ``seconds``; or when ``models`` were made and every rule that has instances had ``cases``, or
    when rules were looked for in models ``at_most`` times, each rule in each model counted until it is known to be
    wrong, or twice as often as there are rules if that is more, or before that, when every rule is known to be wrong.
    Without ``seconds`` the same is done on every machine."""

    seconds: float | None = None
    cases: int = 1000
    models: int = 10
    at_most: int | None = None
