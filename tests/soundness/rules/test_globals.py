"""Names that a ``let`` outside of rules gives."""

from __future__ import annotations

from pathlib import Path

from soundness.rules.own_rules import own_rules

from eqsat_layout.egraph.expressions import show

RULES = """(let $n "relax.abs")
(let $both (+ $n ""))
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) (Op k (Arg x (End))) :when ((is k $n)) :ruleset logical :name "abs")
(rule ((= y (Op k (Arg x (End)))) (is k $both)) ((union y x)) :ruleset logical :name "mine")
"""


def test_a_global_name_is_no_variable_of_a_rule(tmp_path: Path) -> None:
    """It was taken for one: "abs of abs is abs" was judged of all ops, and called wrong."""
    base, (first, second) = own_rules(tmp_path, RULES)
    assert '(is k "relax.abs")' in map(show, first.body)
    assert '(is k (+ "relax.abs" ""))' in map(show, second.body)
    assert not base.unread


def test_each_underscore_is_something_else(tmp_path: Path) -> None:
    """The prover took all of them for one: "the maximum with anything is the maximum with anything" was `proved`."""
    base, (rule,) = own_rules(
        tmp_path,
        """(rule ((= y (Op k (Arg x (Arg _ (End))))) (= z (Op k (Arg x (Arg _ (End))))) (is k "relax.maximum"))
                 ((union y z)) :ruleset logical :name "whatever else")""",
    )
    assert {"_any0", "_any1"} <= set(base.variables(rule))
    assert "_" not in base.variables(rule)
