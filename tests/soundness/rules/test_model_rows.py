"""Rows that are true in models though no rule of the package concludes them."""

from __future__ import annotations

from eqsat_layout.soundness.rules.corpus import CorpusRule, judge_case
from eqsat_layout.soundness.rules.reports import Effort

RULE = """(rule ((inside z f x g) (same z f w h)) ((same w h x g)) :ruleset build :name "made same")"""


def test_a_buffer_of_which_something_is_not_promised_is_the_same_as_itself() -> None:
    """All rows of ``same`` were about buffers that are defined everywhere: what only serves was called the same."""
    outcome = judge_case(CorpusRule("made same", "", "mine.egg", 1, RULE), Effort(models=2, at_most=2))
    assert outcome.caught
