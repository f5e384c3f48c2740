"""Bodies that compute within their facts."""

from __future__ import annotations

from eqsat_layout.egraph.expressions import parse, show
from eqsat_layout.soundness.rules.computed_terms import told_apart
from eqsat_layout.soundness.rules.corpus import CorpusRule, judge_case
from eqsat_layout.soundness.rules.reports import Effort

OTHER_PART = """(rule ((= y (Get i s)) (= s (Op k (Arg x (End)))) (is k "relax.split") (= w (Get (- 1 i) s))
       (typed y t) (typed w t))
      ((union y w)) :ruleset logical :name "other part")"""


def told(body: str) -> str:
    return " ".join(map(show, told_apart(parse(body))))


def test_what_is_computed_in_a_fact_has_a_name_and_an_equation() -> None:
    assert told('(int-attr k "axis" (+ a 1)) (< a (- b 1))') == (
        '(int-attr k "axis" (+ a 1)) (< a (- b 1)) (= (+ a 1) (+ a 1))'
    )
    fact, guard = told_apart(parse('(int-attr k "axis" (+ a 1))'))
    assert fact[3] == guard[1] == "(+ a 1)"
    assert guard[2] == ("+", "a", "1")
    assert told('(is k (+ "relax." "abs"))') == '(is k "relax.abs")'
    assert told("(= b (+ a 1))") == "(= b (+ a 1))"


def test_a_part_whose_number_is_computed_is_looked_for() -> None:
    """The fuzzer ended with a traceback: it read ``(- 1 i)`` as a number."""
    outcome = judge_case(CorpusRule("other part", "", "mine.egg", 1, OTHER_PART), Effort(models=2, at_most=2))
    assert outcome.caught
