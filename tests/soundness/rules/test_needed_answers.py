"""What models have besides the ops that rules name: only where a rule may match it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import ASKED_EVERY, USERS_TOGETHER_EVERY, Fuzzer
from eqsat_layout.soundness.rules.needed_answers import names_its_ops, needs_answers
from eqsat_layout.soundness.rules.rule_base import read_rule_base

BODIES = {
    '(= y (Op k (Arg (Op j (Arg x (End))) (End)))) (is k "relax.abs") (is j "relax.sum") (attr j "axis" a)': True,
    '(= y (Op k (Arg x (End)))) (is k "relax.softmax") (int-attr k "axis" a) (> a 1) (filled-with x "1")': True,
    '(= y (Op k (Arg (Op j (Arg x (End))) (End)))) (is k "relax.abs")': False,
    "(= y (Op k (Arg x (End)))) (is k n) (= z (Op j (Arg x (End)))) (is j n)": False,
    '(= y (Op k (Arg x (End)))) (is k "frozen")': False,
    '(= y (Op v (Arg (Op w (Arg x (End))) (End)))) (is v "view") (is w "view")': False,
    '(= y (Op k (Arg x (End)))) (is k "relax.abs") (is k "frozen")': True,
    '(= y (Op k (Arg x (End)))) (is k "relax.abs") (use y 0 j z)': False,
    '(= y (Op k (Arg x (End)))) (is k "relax.abs") (want y f)': False,
}
"""Bodies of rules, and whether they say what each op is called."""


@pytest.mark.parametrize(("body", "named"), BODIES.items())
def test_ops_that_no_rule_names_are_left_out_where_none_matches_them(body: str, named: bool, tmp_path: Path) -> None:
    """Most of the time of a right rule went into ops that it could not match, and questions about them."""
    path = tmp_path / "mine.egg"
    path.write_text(f'(rule ({body}) ((live y)) :ruleset logical :name "mine")')
    base = read_rule_base(rule_files([path]))
    mine = [rule for rule in base.rules if rule.file == str(path)]
    assert names_its_ops(mine) == named
    assert not names_its_ops([*mine, base.rules[0]])


def test_all_rules_run_together_among_other_ops(tmp_path: Path) -> None:
    """And the host is asked in some of these models."""
    path = tmp_path / "mine.egg"
    path.write_text('(rule ((= y (Op k (Arg x (End)))) (is k "relax.abs")) ((live y)) :ruleset logical :name "mine")')
    base = read_rule_base(rule_files([path]))
    fuzzer = Fuzzer(base, [rule for rule in base.rules if rule.file == str(path)])
    models = [fuzzer.model(number) for number in (0, 1, USERS_TOGETHER_EVERY)]
    have_others = [any(s.name == "relax.add" for s in model.vocabulary.signatures.values()) for model in models]
    assert have_others == [True, False, True]
    assert [model.lexicon.is_asked for model in models] == [True, False, USERS_TOGETHER_EVERY % ASKED_EVERY == 0]


def test_what_no_op_of_a_model_has_is_not_asked_for(tmp_path: Path) -> None:
    """A rule about a whole number of an op that is never run ended the fuzzer: in a model without other ops, graphs of
    some two of them were to be made for answers to it."""
    path = tmp_path / "mine.egg"
    path.write_text(
        '(rule ((= y (Op k (Arg x (End)))) (is k "relax.nn.pixel_shuffle") (int-attr k "upscale_factor" n))'
        ' ((live y)) :ruleset logical :name "mine")'
    )
    base = read_rule_base(rule_files([path]))
    rules = [rule for rule in base.rules if rule.file == str(path)]
    assert not needs_answers(rules, base, given=())
