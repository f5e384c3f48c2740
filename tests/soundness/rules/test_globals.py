"""Names that a ``let`` outside of rules gives."""

from __future__ import annotations

from pathlib import Path

from eqsat_layout.egraph.expressions import show
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.rule_base import read_rule_base

RULES = """(let $n "relax.abs")
(let $both (+ $n ""))
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) (Op k (Arg x (End))) :when ((is k $n)) :ruleset logical :name "abs")
(rule ((= y (Op k (Arg x (End)))) (is k $both)) ((union y x)) :ruleset logical :name "mine")
"""


def test_a_global_name_is_no_variable_of_a_rule(tmp_path: Path) -> None:
    """It was taken for one: "abs of abs is abs" was judged of all ops, and called wrong."""
    path = tmp_path / "mine.egg"
    path.write_text(RULES, encoding="utf-8")
    base = read_rule_base([*rule_files(), path])
    first, second = [rule for rule in base.rules if rule.file == str(path)]
    assert '(is k "relax.abs")' in map(show, first.body)
    assert '(is k (+ "relax.abs" ""))' in map(show, second.body)
    assert not base.unread


def test_each_underscore_is_something_else(tmp_path: Path) -> None:
    """The prover took all of them for one: "the maximum with anything is the maximum with anything" was `proved`."""
    path = tmp_path / "mine.egg"
    path.write_text(
        """(rule ((= y (Op k (Arg x (Arg _ (End))))) (= z (Op k (Arg x (Arg _ (End))))) (is k "relax.maximum"))
                 ((union y z)) :ruleset logical :name "whatever else")""",
        encoding="utf-8",
    )
    base = read_rule_base([*rule_files(), path])
    (rule,) = [rule for rule in base.rules if rule.file == str(path)]
    assert {"_any0", "_any1"} <= set(base.variables(rule))
    assert "_" not in base.variables(rule)
