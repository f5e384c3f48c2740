"""Memories in random models: tensors lie in two, and a rule that takes one for the other is found by that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.maps import GLOBAL
from eqsat_layout.soundness.rules import fuzzer
from eqsat_layout.soundness.rules.corpus import CorpusRule, cases_in, judge_case
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.memories import ARRAYS
from eqsat_layout.soundness.rules.pace import AT_MOST
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


def test_what_a_rule_wants_in_a_memory_that_never_holds_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy is made there, so it is not wrong: it is of no use. One that some tensors fit in may be wanted of all."""
    shape = next(
        shape for shape in FAMILIES if any(f.scope != GLOBAL for f in make_vocabulary(shape, 0).formats[shape])
    )
    monkeypatch.setattr(fuzzer, "FAMILIES", [shape])  # all models have its formats
    monkeypatch.setattr(fuzzer, "VOCABULARIES", 1)
    formats = make_vocabulary(shape, 0).formats[shape]
    flat, elsewhere = (next(f.key for f in formats if (f.scope == GLOBAL) is is_flat) for is_flat in (True, False))
    rules = [
        f'(rule ((want y "{flat}") (= y (Op k _a)) (is k "relax.{name}")) ((want y "{elsewhere}"))'
        f' :ruleset flow :name "{name}")'
        for name in ("nn.relu", "logical_not")
    ]
    rules.append(
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.astype") (want x f)) ((want y f)) :ruleset flow :name "as it")'
    )
    path = tmp_path / "mine.egg"
    path.write_text("\n".join(rules))
    found = fuzz_rules([*rule_files(), path], Effort(models=2, at_most=6), only=lambda r: r.file == str(path))
    said = {report.rule.name: report.remarks for report in found.rules}
    assert [(report.failures, report.trouble) for report in found.rules] == [(0, "")] * 3
    assert any("it holds no elements of bool" in line for line in said["logical_not"])
    assert not any("holds no" in line for name in ("nn.relu", "as it") for line in said[name])
