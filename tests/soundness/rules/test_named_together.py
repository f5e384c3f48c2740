"""Terms of names that several facts of a body speak of."""

from __future__ import annotations

import random
from pathlib import Path

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.corpus import cases_in, judge_case
from eqsat_layout.soundness.rules.named_together import joined_facts, scopes
from eqsat_layout.soundness.rules.reports import Effort
from eqsat_layout.soundness.rules.rule_base import read_rule_base

CORPUS = Path(__file__).parents[1] / "bad_rules"
ONCE = Effort(cases=1, models=1, at_most=1)


def test_two_facts_are_two_rows() -> None:
    facts = [("fold-op", "k", "hs", "r"), ("fold-op", "j", "hs", "r")]
    rows = {"fold-op": [("add", "c,c,", "zero"), ("multiply", "c,c,", "zero"), ("add", "d,d,", "two")]}
    for scope in scopes(facts, rows, 10, random.Random(0)):
        assert {scope["k"], scope["j"]} == {"add", "multiply"}
        assert scope["hs"] == "c,c,"


def test_names_of_one_fact_alone_are_left_to_chance() -> None:
    base = read_rule_base(rule_files())
    by_name = {rule.name: rule for rule in base.rules}
    assert joined_facts(base, by_name["fold-op"]) == ()
    assert joined_facts(base, by_name["pad-of-crop"]) == ()


def test_ops_of_one_fold_are_told_apart() -> None:
    """Two ops with the same result on some constants stood on the same operands in no model, with any seed."""
    (case,) = (case for case in cases_in(CORPUS / "coincidences.egg") if case.name == "ops of one fold")
    assert judge_case(case, ONCE, seed=1).caught
