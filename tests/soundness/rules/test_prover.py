"""Proofs: what follows from the meanings is proved, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat_layout.egraph.expressions import parse
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.axioms import AXIOMS
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.prover import Prover, prove_all
from eqsat_layout.soundness.rules.reports import Effort
from eqsat_layout.soundness.rules.rule_base import read_rule_base

BAD = Path(__file__).with_name("bad_rules.egg")


def test_all_rules_of_the_package_are_proved() -> None:
    proofs = prove_all(read_rule_base(rule_files()))
    assert len(proofs) >= 75
    assert [(str(p.rule), p.why) for p in proofs if not p.proved] == []


def test_no_wrong_rule_is_proved() -> None:
    base = read_rule_base([*rule_files(), BAD])
    wrong = [rule for rule in base.rules if rule.file == str(BAD)]
    assert [str(p.rule) for p in prove_all(base, wrong) if p.proved] == []


def test_the_axioms_do_not_contradict_each_other() -> None:
    """z3 finds no contradiction among them; one would prove every rule, the wrong ones too."""
    import z3

    prover = Prover(read_rule_base(rule_files()))
    solver = z3.Solver()
    solver.set("rlimit", 2_000_000)
    solver.add(*prover._axioms)
    assert solver.check() != z3.unsat
    assert len(parse(AXIOMS)) == len(prover._axioms)


@pytest.mark.parametrize(
    ("rule", "proved"),
    [
        ("(rule ((same y f x g) (same x g z h)) ((same y f z h)))", True),
        ("(rule ((same y f x g)) ((inside y f x g)))", True),
        ("(rule ((inside y f x g)) ((same y f x g)))", False),
        ("(rule ((same y f x g) (inside x g z h)) ((inside y f z h)))", True),
        ("(rule ((alias y k x)) ((union x y)))", False),
        ("(rule ((want y f) (live z)) ((same z f z f)))", False),  # f need be no format of z
        ("(rule ((want y f)) ((given y f)))", False),
        ("(rule ((back k f v gs) (back k g w hs)) ((back k f v hs)))", False),
        ("(rule ((alias y k x) (identity k)) ((union x y)))", True),
        ("(rule ((padded y k x) (cropped y c x)) ((union x y)))", True),  # a pad is never a crop's result: no instance
    ],
)
def test_small_rules(tmp_path: Path, rule: str, proved: bool) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(rule, encoding="utf-8")
    base = read_rule_base([*rule_files(), path])
    (proof,) = prove_all(base, base.rules[-1:])
    assert proof.proved == proved, proof.why
    assert proof.is_vacuous == ("cropped y" in rule)


def test_rules_that_only_take_facts_back_are_right(tmp_path: Path) -> None:
    """What is concluded without a fact holds; it was said to have no meaning."""
    path = tmp_path / "back.egg"
    path.write_text(
        '(rule ((want y f) (= y (Op k _a)) (is k "relax.exp")) ((delete (want y f))) :ruleset flow :name "no")'
    )
    base = read_rule_base([*rule_files(), path])
    (rule,) = (rule for rule in base.rules if rule.file == str(path))
    assert Prover(base).prove(rule).word == "proved"
    found = fuzz_rules([*rule_files(), path], Effort(models=2, at_most=4), only=lambda r: r.file == str(path))
    (report,) = found.rules
    assert (report.failures, report.trouble) == (0, "")
