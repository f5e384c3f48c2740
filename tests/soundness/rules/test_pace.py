"""How long rules are fuzzed: what is spent on which."""

from __future__ import annotations

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import FEW_RULES
from eqsat_layout.soundness.rules.pace import AT_MOST, Pace
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport, RuleReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base


def models_of(count: int, wrong: int, effort: Effort) -> list[int]:
    """In how many models each of so many rules is looked for, of which some fail in the first."""
    rule = read_rule_base(rule_files()).rules[0]
    reports = [RuleReport(rule) for _ in range(count)]
    pace = Pace(effort, reports, lambda _: True)
    while pace.share(0.0, are_wrong_together=False) < 1:
        pace.begins_model()
        for report in reports:
            report.instances += 1
        for report in reports[:wrong]:
            report.failures = 1
    assert FuzzReport(reports, 0).least_models == min((r.models for r in reports[wrong:]), default=0)
    return [report.models for report in reports]


def test_what_wrong_rules_leave_is_for_the_others() -> None:
    """A group of many rules had two models, however few were not yet known to be wrong."""
    effort = Effort(at_most=AT_MOST)
    assert models_of(1, 0, effort) == [AT_MOST]
    assert models_of(FEW_RULES, 0, effort) == [2] * FEW_RULES
    assert models_of(FEW_RULES, FEW_RULES, effort) == [1] * FEW_RULES
    assert models_of(FEW_RULES, FEW_RULES - 2, effort)[-2:] == [AT_MOST] * 2
    assert models_of(FEW_RULES, FEW_RULES // 2, effort)[-1] == 3
    assert models_of(2, 1, effort) == [1, 5]


def test_nothing_is_made_for_rules_that_no_model_has_an_instance_of() -> None:
    """What no kernel is found for was said after all models that a rule has."""
    known = read_rule_base(rule_files()).rules
    reports = [RuleReport(known[0]), RuleReport(known[1])]
    pace = Pace(Effort(at_most=AT_MOST), reports, lambda _: True)
    pace.begins_model()
    pace.vain = {known[0].key}
    assert pace.share(0.0, are_wrong_together=False) < 1
    pace.begins_model()
    assert pace.share(0.0, are_wrong_together=False) < 1
    reports[1].failures = 1
    assert pace.share(0.0, are_wrong_together=False) == 1
