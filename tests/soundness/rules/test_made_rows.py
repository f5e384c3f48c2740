"""Rows about ops that rules ask for, in models of all rules together."""

from __future__ import annotations

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.lexicon import bare_lexicon
from eqsat_layout.soundness.rules.made_rows import add_made_rows
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.random_model import make_model
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.vocabulary import make_vocabulary


@pytest.fixture(scope="module")
def model() -> RuleModel:
    found = make_model(bare_lexicon(make_vocabulary((2, 3), 0), 0), read_rule_base(rule_files()), 0)
    for _ in range(4):
        add_made_rows(found)
    return found


def test_what_is_of_another_type_may_become_anything(model: RuleModel) -> None:
    """Mutants that look at one type only were true of all rows that there were: each tensor might become itself."""
    rows = model.rows("may-become")
    assert any(model.values.are_of_two_types(*row) for row in rows)
    assert all(model.evaluator.means("may-become", row) for row in rows)
