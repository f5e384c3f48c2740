"""Rules known to be wrong, and to be right: a sample here, all of them in ``bench.soundness.bad_rules``."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import some

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.corpus import CorpusRule, cases_in, judge_case
from eqsat_layout.soundness.rules.fuzzer import AT_MOST
from eqsat_layout.soundness.rules.prover import Prover
from eqsat_layout.soundness.rules.reports import Effort
from eqsat_layout.soundness.rules.rule_base import read_rule_base

CORPUS = Path(__file__).parents[1]
QUICK = Effort(cases=100, models=3, at_most=AT_MOST)
SHORT = Effort(cases=30, models=2, at_most=2)


def cases(folder: str) -> list[CorpusRule]:
    return [case for file in sorted((CORPUS / folder).glob("*.egg")) for case in cases_in(file)]


def one_of_each(folder: str) -> list[CorpusRule]:
    """The first case of every file."""
    return list({case.file: case for case in reversed(cases(folder))}.values())


def test_there_are_many_and_each_says_why() -> None:
    assert len(cases("bad_rules")) >= 250
    assert len(cases("sound_rules")) >= 50
    for case in (*cases("bad_rules"), *cases("sound_rules")):
        assert case.why
        assert not case.why.startswith(("(rule", "(rewrite", "(relation", ";"))


@pytest.mark.parametrize("case", one_of_each("bad_rules"), ids=str)
def test_wrong_rules_are_caught(case: CorpusRule) -> None:
    assert judge_case(case, QUICK).caught


@pytest.mark.parametrize("case", some(one_of_each("sound_rules")), ids=str)
def test_right_rules_are_not_accused(case: CorpusRule) -> None:
    outcome = judge_case(case, SHORT)
    assert outcome.is_clean, outcome.said


@pytest.fixture(scope="module")
def known() -> Prover:
    return Prover(read_rule_base(rule_files()))


@pytest.mark.parametrize("file", sorted((CORPUS / "bad_rules").glob("*.egg")), ids=lambda file: file.stem)
def test_no_wrong_rule_is_proved(file: Path, known: Prover, tmp_path: Path) -> None:
    """Those that conclude relations without a meaning are not claimed to be: the report says so."""
    for number, case in enumerate(cases_in(file)):
        if file.stem == "meanings" and not case.name.startswith("own but"):
            continue
        path = tmp_path / f"{number}.egg"
        path.write_text(case.text, encoding="utf-8")
        base = read_rule_base([*rule_files(), path])
        prover = Prover(base, known)
        rules = [rule for rule in base.rules if rule.file == str(path) and rule.name == case.name]
        proofs = [prover.prove(rule) for rule in rules]
        assert [str(proof.rule) for proof in proofs if proof.proved and not proof.carried] == []
