"""Rules known to be wrong, and to be right: a sample here, all of them in ``bench.soundness.bad_rules``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from effort import some

from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.corpus import CorpusRule, cases_in, judge_case
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.pace import AT_MOST
from eqsat_layout.soundness.rules.prover import Prover
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base

CORPUS = Path(__file__).parents[1]
REFUSED = "own identity"
"""Nothing is read of a file that has it."""
GROUP = 6
ALONE = Effort(cases=100, models=3, at_most=AT_MOST)
QUICK = Effort(cases=100, models=3, at_most=GROUP * AT_MOST)
SHORT = Effort(cases=30, models=2, at_most=2)


def cases(folder: str) -> list[CorpusRule]:
    return [case for file in sorted((CORPUS / folder).glob("*.egg")) for case in cases_in(file)]


def one_of_each(folder: str) -> list[CorpusRule]:
    """The first case of every file."""
    return list({case.file: case for case in reversed(cases(folder))}.values())


def in_groups(cases: Sequence[CorpusRule]) -> list[Sequence[CorpusRule]]:
    return [cases[start : start + GROUP] for start in range(0, len(cases), GROUP)]


def named(group: Sequence[CorpusRule]) -> str:
    return f"{Path(group[0].file).stem} to {Path(group[-1].file).stem}"


def test_there_are_many_and_each_says_why() -> None:
    assert len(cases("bad_rules")) >= 250
    assert len(cases("sound_rules")) >= 50
    for case in (*cases("bad_rules"), *cases("sound_rules")):
        assert case.why
        assert not case.why.startswith(("(rule", "(rewrite", "(relation", ";"))


def fuzz_together(cases: Sequence[CorpusRule], effort: Effort, path: Path) -> FuzzReport:
    """As one file, so that they share the models."""
    path.write_text("\n\n".join(case.text for case in cases), encoding="utf-8")
    return fuzz_rules(rule_files([path]), effort, only=lambda rule: rule.file == str(path))


@pytest.mark.parametrize(
    "group", in_groups([case for case in one_of_each("bad_rules") if case.name != REFUSED]), ids=named
)
def test_wrong_rules_are_caught(group: Sequence[CorpusRule], tmp_path: Path) -> None:
    """Those that are wrong only with what the package concludes are seen where no other rule is wrong: alone."""
    report = fuzz_together(group, QUICK, tmp_path / "mine.egg")
    caught = {found.rule.name for found in report.rules if found.counterexample is not None}
    missed = [case for case in group if not caught & set(case.rules)]
    assert len(missed) <= 2, missed
    assert [str(case) for case in missed if not judge_case(case, ALONE).caught] == []


def test_a_wrong_rule_that_is_refused_is_caught() -> None:
    (case,) = [case for case in cases("bad_rules") if case.name == REFUSED]
    assert judge_case(case, ALONE).caught


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "slice of the same shape",
        "repeat without an axis is flat",
        "nine from the end to the ninth",
        "pads of one format",
        "pads are of one size",
    ],
)
def test_what_few_draws_show_is_caught_with_every_seed(name: str, seed: int) -> None:
    """Slices that reverse all of an axis, views to the one shape of which the rule makes something else, axes that are
    longer than the places that the rule names, and two pads of one tensor, in one buffer or of two sizes."""
    (case,) = [case for case in cases("bad_rules") if case.name == name]
    assert judge_case(case, ALONE, seed).caught


@pytest.mark.parametrize("group", in_groups(some(one_of_each("sound_rules"))), ids=named)
def test_right_rules_are_not_accused(group: Sequence[CorpusRule], tmp_path: Path) -> None:
    report = fuzz_together(group, SHORT, tmp_path / "mine.egg")
    assert report.is_clean, [*report.false_merges, *(str(found) for found in report.rules if not found.is_sound)]


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
        proofs = []
        for rule in rules:
            with suppress(RuleError):  # one that is refused is not proved
                proofs.append(prover.prove(rule))
        assert [str(proof.rule) for proof in proofs if proof.proved and not proof.carried] == []
