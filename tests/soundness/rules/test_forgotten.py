"""What ops forget of their operands: rules that take them for one-to-one are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.soundness.rules.corpus import cases_in, judge_case
from eqsat_layout.soundness.rules.reports import Effort

CORPUS = Path(__file__).parents[1] / "bad_rules" / "coincidences.egg"


@pytest.mark.parametrize("name", ["sigmoids are of one list", "where has an inverse"])
def test_ops_are_on_two_operands_that_they_can_not_tell_apart(name: str) -> None:
    """Two operands of one result were found by chance: of large numbers the sigmoid is 1, and that it is one-to-one was
    "ok"."""
    (case,) = [case for case in cases_in(CORPUS) if case.name == name]
    assert judge_case(case, Effort(cases=1, models=1, at_most=1)).caught
