"""What ops forget of their operands: rules that take them for one-to-one are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.corpus import cases_in, judge_case
from eqsat_layout.soundness.rules.counterexample import describe
from eqsat_layout.soundness.rules.forgotten import forgotten_operand
from eqsat_layout.soundness.rules.lexicon import bare_lexicon
from eqsat_layout.soundness.rules.random_model import make_model
from eqsat_layout.soundness.rules.reports import Effort
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.vocabulary import make_vocabulary

CORPUS = Path(__file__).parents[1] / "bad_rules" / "coincidences.egg"


@pytest.mark.parametrize("name", ["sigmoids are of one list", "where has an inverse"])
def test_ops_are_on_two_operands_that_they_can_not_tell_apart(name: str) -> None:
    """Two operands of one result were found by chance: of large numbers the sigmoid is 1, and that it is one-to-one was
    "ok"."""
    (case,) = [case for case in cases_in(CORPUS) if case.name == name]
    assert judge_case(case, Effort(cases=1, models=1, at_most=1)).caught


def test_a_counterexample_of_an_operand_that_was_tried_is_told() -> None:
    """It ended in ``IndexError: list index out of range``: nothing was known of how that tensor came about."""
    base = read_rule_base(rule_files())
    model = make_model(bare_lexicon(make_vocabulary((2, 3), 0), 0), base, 0)
    before = len(model.values.tensors)
    name, operands = next((k, a) for k, a in model.ops if model.vocabulary.signatures.get(k, None) and len(a) == 1)
    forgotten_operand(model, name, operands, 0)
    tried = len(model.values.tensors) - 1
    assert tried >= before
    (rule,) = [rule for rule in base.rules if rule.name == "becomes"]
    shown = describe(model, rule, {"y": tried, "t": before - 1}, rule.actions[0], "they differ", seed=0)
    assert "another operand of" in shown.text
