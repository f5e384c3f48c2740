"""Rules that ask for ops are fuzzed as all are: what the host makes is evaluated; what it can't make claims nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tvm import relax

from eqsat_layout import op, rule
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness import assert_rules_sound
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.made_ops import MadeOps
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.terms import TermEvaluator

RULES = """
(rule ((= y (Op k (Arg x (Arg s (End))))) (is k "relax.multiply") (= s (Op j (Arg x (End)))) (is j "relax.sigmoid"))
      ((becomes y (Make "relax.nn.silu" "" (Arg x (End))))) :ruleset logical :name "right")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp"))
      ((becomes y (Make "relax.nn.relu" "" (Arg x (End))))) :ruleset logical :name "wrong")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.softmax"))
      ((becomes y (Make k "axis=0" (Arg x (End))))) :ruleset logical :name "wrong-attribute")
(rule ((= y (Op c (Arg r (End)))) (is c "crop") (= r (Op k (Arg x (End)))) (is k "relax.nn.relu"))
      ((becomes y (Make k "" (Arg (Make c "" (Arg x (End))) (End))))) :ruleset logical :name "nested")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.exp"))
      ((becomes y (Make "relax.matmul" "" (Arg x (End))))) :ruleset logical :name "never-made")
"""


def fuzzed(folder: Path, text: str, effort: Effort) -> FuzzReport:
    """The rules of a file of a user's, judged."""
    path = folder / "mine.egg"
    path.write_text(text)
    return fuzz_rules([*rule_files(), path], effort, only=lambda r: r.file == str(path))


def test_no_attribute_is_a_default_or_a_whole_number_by_chance() -> None:
    """In the models a convolution with ``data_layout="NWCH"`` was one that says nothing of it: a right rule that asks
    for the default was accused."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    signatures = {"k": SimpleNamespace(template=relax.op.sum(x, axis=[1], keepdims=True))}
    values = MagicMock(parts={}, signatures=signatures, makes=MadeOps(MagicMock(), {}, {}))
    evaluator = TermEvaluator(values, read_rule_base(rule_files()))
    assert evaluator.means("attr", ("k", "keepdims", "True"))
    assert not evaluator.means("default", ("k", "keepdims"))
    assert not evaluator.means("default", ("k", "no such"))
    assert not evaluator.means("int-attr", ("k", "keepdims", 1))
    signatures["j"] = SimpleNamespace(template=relax.op.nn.softmax(x, axis=-1))
    assert evaluator.means("default", ("j", "axis"))
    assert evaluator.means("int-attr", ("j", "axis", -1))


def test_rules_that_ask_for_ops_are_fuzzed(tmp_path: Path) -> None:
    report = fuzzed(tmp_path, RULES, Effort(cases=5, models=3))
    by_name = {r.rule.name: r for r in report.rules}
    assert {name for name, r in by_name.items() if r.failures} == {"wrong", "wrong-attribute"}
    assert {name for name, r in by_name.items() if r.is_sound} == {"right", "nested"}
    assert "can't be made" in by_name["never-made"].trouble
    counterexample = by_name["wrong"].counterexample
    assert counterexample is not None
    assert '(Make "relax.nn.relu" "" (Arg x (End))) = ' in counterexample.text


def test_made_ops_without_elements_claim_nothing(tmp_path: Path) -> None:
    """A window larger than what it slides over: type inference takes it, and the fuzzer ended in an error."""
    text = (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.max_pool1d") (attr k "pool_size" s))\n'
        '      ((becomes y (Make k (+ "pool_size=" s "+[9]") (Arg x (End))))) :ruleset logical :name "larger")\n'
    )
    report = fuzzed(tmp_path, text, Effort(cases=5, models=2))
    assert report.crashes == []
    assert "can't be" in report.rules[0].trouble or report.rules[0].failures


@rule
def twice(x: Any) -> Iterator[Any]:
    yield op.add(x, x)
    if x.ty.dtype == "bool":
        return
    yield op.multiply(x, relax.const(2, x.ty.dtype))


@rule
def moved_axis(x: Any, axis: Any) -> Iterator[Any]:
    yield op.nn.softmax(x, axis=axis)
    yield op.nn.softmax(x, axis=abs(axis))


def test_rules_written_in_python_are_fuzzed() -> None:
    assert_rules_sound(twice, seconds=0.01)  # one model is always made, and has instances
    with pytest.raises(
        AssertionError, match=r"(?s)test_made_ops.py:\d+: rule 'moved_axis' is not sound.*relax.nn.softmax"
    ):
        assert_rules_sound(moved_axis, cases=5)


def test_made_ops_that_are_not_one_kernel_are_evaluated(tmp_path: Path) -> None:
    """``relax.cumsum`` has no TIR of its own: what a rule made of it was not judged."""
    text = (
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.cumsum") (attr k "axis" v) (default k "dtype"))\n'
        '      ((becomes y (Make "relax.cumsum" (+ "axis=" v) (Arg x (End))))) :ruleset logical :name "anew")\n'
    )
    report = fuzzed(tmp_path, text, Effort(cases=1, models=1))
    assert report.rules[0].failures, report.rules[0].trouble
