"""Tensors of no elements in random models."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.body_searches import searches
from eqsat_layout.soundness.rules.corpus import cases_in, judge_case
from eqsat_layout.soundness.rules.instance_traits import op_calls_of
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.rule_base import read_rule_base

CORPUS = Path(__file__).parents[1] / "bad_rules" / "empty_tensors.egg"
SHAPES = [(2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["product of zeros for their sum"])
def test_what_is_wrong_of_nothing_only_is_caught(name: str) -> None:
    """No axis had 0 elements, and rules that are right of all others were called right."""
    (case,) = [case for case in cases_in(CORPUS) if case.name == name]
    assert judge_case(case).caught


def drawn(folder: Path, fact: str) -> list[bool]:
    """Whether the instances of a rule hold nothing."""
    path = folder / "mine.egg"
    path.write_text(f'(rule ((= y (Op k (Arg x (End)))) {fact}) ((live y)) :ruleset logical :name "mine")')
    base = read_rule_base(rule_files([path]))
    (rule,) = [rule for rule in base.rules if rule.name == "mine"]
    instances = Instances(dict(searches(base, rule)))
    found = instances.draw(SHAPES, [], lambda shape, _: IndexMap.identity(shape), random.Random(0))
    return [any(call.holds_nothing for call in op_calls_of(one)) for of_one in found.values() for one in of_one]


def test_what_holds_nothing_comes_beside_others(tmp_path: Path) -> None:
    """It took the place of others: ops that only a few calls are of were left without."""
    of_sums = drawn(tmp_path, '(is k "relax.sum")')
    assert 1 <= of_sums.count(True) <= 2
    assert of_sums.count(False) >= 4
    assert drawn(tmp_path, '(is k "relax.nothing_like_it")') == []
