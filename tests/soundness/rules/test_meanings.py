"""Every meaning is as strong as its use: with any part of it left out, something that was proved no longer is.

What the host reads of the storage relations (``eqsat_layout/extract/makers.py``, ``selection.py``) is written as rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from eqsat_layout.egraph.expressions import Expr, show
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.prover import Prover
from eqsat_layout.soundness.rules.remarks import heads
from eqsat_layout.soundness.rules.rule_base import Meaning, RuleBase, read_rule_base

HOST = """
(relation produced (Tensor String String Args))
;= (produced y f v a) := (computes v a y f)
(rule ((run y f v a)) ((produced y f v a)) :ruleset build :name "host/run")
(relation taken (Tensor String i64 Tensor String))
;= (taken z f i y fs) := (and (= z (Get i y)) (= f (nth-of fs i)) (fits fs y))
(rule ((part z f i y fs)) ((taken z f i y fs)) :ruleset build :name "host/part")
(relation served (Tensor String Tensor String))
;= (served z f x g) := (serves (lay g x) (lay f z))
(rule ((inside z f x g)) ((served z f x g)) :ruleset build :name "host/inside")
(rule ((same y f x g)) ((served y f x g) (served x g y f)) :ruleset build :name "host/same")
(relation brought (Tensor String))
;= (brought y f) := (and (arrives y f) (fits f y))
(rule ((given y f)) ((brought y f)) :ruleset build :name "host/given")
"""


KINDS = {
    "ask-compose": ("view", "view"),
    "ask-view": ("view", ""),
    "ask-viewed": ("view", ""),
    "ask-cancel": ("crop", "pad"),
    "ask-rim": ("", "", "pad"),
    "ask-pad-view": ("pad", ""),
    "ask-pad-viewed": ("pad", ""),
    "ask-peek": ("crop", ""),
    "ask-peeked": ("crop", ""),
}
"""What the host takes the names in its questions for (``eqsat_layout/egraph/answers.py``)."""


def asked(kinds: tuple[str, ...]) -> Meaning:
    columns = tuple(f"k{i}" for i in range(len(kinds)))
    named = tuple(("named", column, f'"{kind}"') for column, kind in zip(columns, kinds, strict=True) if kind)
    return Meaning(columns, ("and", *named), "", 0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> RuleBase:
    path = tmp_path_factory.mktemp("rules") / "host.egg"
    path.write_text(HOST, encoding="utf-8")
    read = read_rule_base([*rule_files(), path])
    return replace(read, meanings={**read.meanings, **{name: asked(kinds) for name, kinds in KINDS.items()}})


RELATIONS = sorted(read_rule_base(rule_files()).meanings)


SURPLUS: dict[str, set[str]] = {
    "filled-with": {"(everywhere x v)"},
    "attr": {"(attribute k n v)"},
    "back": {"(reads v gs)", "(fits f (Op k a))"},
    "cancel": {'(named c "crop")', '(named k "pad")'},
    "cut": {'(=> (named k "crop") (false))', "(false)", "(fits f (at k x))"},
    "default": {"(by-default k n)"},
    "fwd": {"(fits g (pick a i))"},
    "int-attr": {"(attribute-number k n i)"},
    "made": {"(ok t)"},
    "pad-view": {'(named k "pad")', "(fits f (at k x))", "(fits g x)"},
    "peek": {'(named c "crop")', "(fits g x)", "(fits f (at c x))"},
    "results": {"(ok (Get i (Op k a)))", "(= f (nth-of fs i))"},
    "rim-through": {'(named k "pad")', '(named l "pad")', '(=> (named j "pad") (false))', "(false)"},
    "term": {"(ok (graph r a))"},
    "terms": {"(ok (graph r a))"},
    "typing": {"(ok x)"},
    "typing-all": {"(ok a)"},
    "view": {'(named k "view")', "(fits f (at k x))", "(fits g x)"},
    "whole": {'(named c "crop")', "(fits f (at c x))"},
}
"""Parts that no proof needs: the host's answers are checked against them, or others say as much.

Only rules of users read attributes and what constants hold; what has a type is defined.
"""


@pytest.fixture(scope="module")
def known(base: RuleBase) -> Prover:
    return Prover(base)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_weaker_meaning_is_noticed(base: RuleBase, known: Prover, relation: str) -> None:
    readers = [rule for rule in base.rules if relation in heads(rule)]
    proved = [rule for rule in readers if known.prove(rule).proved]
    meaning = base.meanings[relation]
    missed = set()
    for part, weaker in weakened(meaning.formula):
        other = replace(base, meanings={**base.meanings, relation: replace(meaning, formula=weaker)})
        prover = Prover(other, known)
        missed |= set() if all(prover.prove(rule).proved for rule in proved) else {part}
    assert {part for part, _ in weakened(meaning.formula)} - missed == SURPLUS.get(relation, set())


def weakened(formula: Expr) -> Iterator[tuple[str, Expr]]:
    """The formula without one of its parts, the last that is said too, and that part; at the least it says nothing."""
    if isinstance(formula, tuple) and formula[0] == "and":
        for i, part in enumerate(formula):
            if i:
                yield show(part), (*formula[:i], *formula[i + 1 :])
                yield from (
                    (left_out, (*formula[:i], weaker, *formula[i + 1 :])) for left_out, weaker in weakened(part)
                )
    elif isinstance(formula, tuple) and formula[0] in ("=>", "some"):
        yield from ((left_out, (*formula[:2], weaker)) for left_out, weaker in weakened(formula[2]))
    else:
        yield show(formula), ("and",)


def test_what_is_weakened() -> None:
    formula: Expr = ("=>", ("p",), ("and", ("q",), ("=>", ("r",), ("s",))))
    q, r_then_s = ("q",), ("=>", ("r",), ("s",))
    assert dict(weakened(formula)) == {
        "(q)": ("=>", ("p",), ("and", ("and",), r_then_s)),
        "(=> (r) (s))": ("=>", ("p",), ("and", q)),
        "(s)": ("=>", ("p",), ("and", q, ("=>", ("r",), ("and",)))),
    }
