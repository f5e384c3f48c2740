"""Ops that fit together are found for bodies of many ops."""

from __future__ import annotations

import random
from pathlib import Path

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.graph.borders import Border
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.body_searches import searches
from eqsat_layout.soundness.rules.corpus import cases_in
from eqsat_layout.soundness.rules.instances import Instances
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.schema import OpCall

CORPUS = Path(__file__).parents[1] / "bad_rules"
SHAPES = [(2, 3), (2, 4)]


def test_calls_that_few_draws_find_are_found_with_every_seed(tmp_path: Path) -> None:
    """Whatever was refused was drawn anew, and nothing was learned of why: half of the vocabularies had none."""
    (case,) = (case for case in cases_in(CORPUS / "seventh_tester.egg") if case.name == "flip of a choice")
    path = tmp_path / "one.egg"
    path.write_text(case.text)
    base = read_rule_base([*rule_files(), path])
    sought = dict(one for rule in base.rules if rule.file == str(path) for one in searches(base, rule))
    views = [IndexMap.identity(shape) for shape in SHAPES]
    for seed in range(2):
        found = Instances(sought).draw(SHAPES, views, lambda shape, _: IndexMap.identity(shape), random.Random(seed))
        assert found[case.name]


def test_crops_are_those_that_the_body_says(tmp_path: Path) -> None:
    """A slice of every second element of two is a crop, of which rules are told without steps: it matched nothing."""
    path = tmp_path / "one.egg"
    path.write_text(
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.strided_slice") (attr k "axes" "[1]") (attr k "begin" "[0]")'
        ' (attr k "end" "[99]") (attr k "strides" "[2]")) ((live y)) :ruleset logical :name "steps")'
    )
    base = read_rule_base([*rule_files(), path])
    sought = dict(one for rule in base.rules if rule.file == str(path) for one in searches(base, rule))
    parts = [IndexMap.identity(SHAPES[0]), Border(SHAPES[0], ((0, 0), (0, 1)), None)]
    found = Instances(sought).draw(SHAPES, parts, lambda shape, _: IndexMap.identity(shape), random.Random(0))
    assert found["steps"]
    assert all(isinstance(call, OpCall) for instance in found["steps"] for call in instance.values())
