"""Slips in rules that egglog takes all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm import relax

import eqsat_layout
from eqsat_layout.egraph.rule_forms import rules_of
from eqsat_layout.egraph.rule_lint import lint, lint_notes
from eqsat_layout.egraph.rules import Command, read_all, rule_files
from eqsat_layout.errors import RuleError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(rule ((alias y k x) (identity k)) ((union y x)))", "it is in no ruleset"),
        ('(rule ((is k "relax.relu") (= y (Op k y))) ((live y)) :ruleset flow)', "did you mean relax.nn.relu?"),
        ('(rule ((is k "relax.nn.rellu") (= y (Op k y))) ((live y)) :ruleset flow)', "did you mean relax.nn.relu"),
        ('(rule ((is k "relax.rely") (= y (Op k y))) ((live y)) :ruleset flow)', "did you mean relax.nn.relu"),  # eye
        ("(rule ((is k relax.nn.relu) (= y (Op k y))) ((live y)) :ruleset flow)", 'write "relax.nn.relu"'),
        ("(rule ((alias y k x) (identity k)) ((live y)) :ruleset logical)", "used once: x"),
        (
            '(rule ((= y (Op k y)) (is k "relax.permute_dims") (attr k "axis" y)) ((live y)) :ruleset flow)',
            "relax.permute_dims has no attribute axis; it has axes",
        ),
        (
            '(rule ((= y (Op k y)) (is k "relax.nn.relu") (default k "axis")) ((live y)) :ruleset flow)',
            "relax.nn.relu has no attribute axis; it has none",
        ),
        (
            '(rule ((= y (Op k y)) (is k "relax.astype") (attr k "dtype" "int8")) ((live y)) :ruleset flow)',
            """the attribute dtype is never "int8": write "'int8'\"""",
        ),
        (
            '(rule ((= y (Op k y)) (is k "relax.permute_dims") (attr k "axes" "[1,0]")) ((live y)) :ruleset flow)',
            'the attribute axes is never "[1,0]": write "[1, 0]"',
        ),
    ],
)
def test_slips_are_said(text: str, said: str) -> None:
    (rule,) = rules_of(Command(text, "mine.egg", 1, 1))
    assert any(said in line for line in lint(rule)), list(lint(rule))


@pytest.mark.parametrize(
    "text",
    [
        "(rule ((alias y k x) (identity k)) ((union y x)) :ruleset logical)",
        '(rewrite (Op k (Arg x (End))) x :when ((is k "relax.nn.relu") (want x _f)) :ruleset logical)',
        '(rule ((is k "view") (alias y k x)) ((union y x)) :ruleset logical)',
        '(rule ((= y (Op k x)) (is k "relax.permute_dims") (attr k "axes" "[1, 0]")) ((union y x)) :ruleset logical)',
        '(rule ((is k "call_tir:mine") (alias y k x)) ((union y x)) :ruleset logical)',
    ],
)
def test_nothing_is_said_of_a_rule_that_is_in_order(text: str) -> None:
    (rule,) = rules_of(Command(text, "mine.egg", 1, 1))
    assert list(lint(rule)) == []


def test_a_plan_says_what_is_wrong_with_rules(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text('(rule ((alias y k x) (identity k)) ((union y x)) :name "mine")', encoding="utf-8")
    assert any("rule mine (mine.egg:1): it is in no ruleset" in line for line in lint_notes(read_all([path])))
    assert lint_notes(read_all(rule_files())) == []


def test_an_error_that_a_slip_may_be_behind_says_the_slip(tmp_path: Path) -> None:
    """A name without quotes matches every op, and what follows from that was all that was said."""
    path = tmp_path / "mine.egg"
    text = '(rewrite (Op k (Arg x (End))) x :when ((is k relax.nn.relu)) :ruleset logical :name "mine")'
    path.write_text(text, encoding="utf-8")
    x = relax.Var("x", relax.TensorType((2, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(relax.op.nn.relu(x), (16,)))
            result = builder.emit_output(relax.op.reshape(rows, (4, 4)))
        builder.emit_func_output(result)
    with pytest.raises(RuleError, match=r'rule mine \(mine.egg:1\): .* is a variable here.*write "relax.nn.relu"'):
        eqsat_layout.plan(builder.get(), rules=[path])
