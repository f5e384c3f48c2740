"""Memories in random models: tensors lie in two, and a rule that takes one for the other is found by that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eqsat_layout.maps import GLOBAL
from eqsat_layout.soundness.rules.corpus import CorpusRule, cases_in, judge_case
from eqsat_layout.soundness.rules.fuzzer import AT_MOST
from eqsat_layout.soundness.rules.memories import ARRAYS
from eqsat_layout.soundness.rules.reports import Effort
from eqsat_layout.soundness.rules.stored import StoredBytes
from eqsat_layout.soundness.rules.vocabulary import FAMILIES, make_vocabulary

CASES = {case.name: case for case in cases_in(Path(__file__).parents[1] / "bad_rules" / "scopes.egg")}


def is_caught(case: CorpusRule) -> bool:
    return judge_case(case, Effort(cases=60, models=2, at_most=AT_MOST)).caught


def test_a_rule_that_takes_one_memory_for_another_is_caught_by_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["the copy is the tensor"]
    assert is_caught(case)
    serves = StoredBytes.serves
    monkeypatch.setattr(StoredBytes, "serves", lambda one, other: serves(replace(one, scope=other.scope), other))
    assert not is_caught(case)


def test_some_tensors_lie_elsewhere_and_some_are_too_large_for_it() -> None:
    has = []
    for shape in FAMILIES:
        formats = make_vocabulary(shape, 0).formats[shape]
        elsewhere = [fmt for fmt in formats if fmt.scope != GLOBAL]
        assert all(ARRAYS.why_not(fmt, "float32") is None for fmt in elsewhere)
        has.append(bool(elsewhere))
    assert True in has
    assert False in has
