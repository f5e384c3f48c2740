"""Questions of the host: they are found where rules ask them, and what is not asked or checked is said."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.lexicon import Lexicon
from eqsat_layout.soundness.rules.questions import Questions
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport
from eqsat_layout.soundness.rules.rule_base import read_rule_base
from eqsat_layout.soundness.rules.vocabulary import FAMILIES, make_vocabulary

MIRROR = """
(relation ask-mirror (String))
(relation mirror (String String))
;= (mirror k j) := (and (named j "view") (=> (ok (at k x)) (= (at j (at k x)) x)))
(rule ((alias y k x)) ((ask-mirror k)) :ruleset logical :name "mirror?")
(rule ((alias y k x) (mirror k j)) ((union x (Op j (Arg y (End))))) :ruleset logical :name "mirror")
"""


class Mirrors(OpAnswers):
    """Answers one question more: the view that undoes a view."""

    def answer_mirror(self, view: str) -> Any:
        inverse = self._views[view].inverse()
        if inverse is None:
            return []
        return [("mirror", (view, self._view_name(inverse))), *self._view_facts(inverse)]


class FalseMirrors(Mirrors):
    """Says of every view that it undoes itself."""

    def answer_mirror(self, view: str) -> Any:
        return [("mirror", (view, view))]


def fuzz(folder: Path, text: str, host: Any = OpAnswers, models: int = 2) -> FuzzReport:
    path = folder / "mine.egg"
    path.write_text(text)
    effort = Effort(cases=5, models=models)
    return fuzz_rules([*rule_files(), path], effort, only=lambda r: r.file == str(path), host=host)


@cache
def filled(shape: Any) -> tuple[Questions, Lexicon]:
    questions = Questions(read_rule_base(rule_files()))
    return questions, questions.make_lexicon(make_vocabulary(shape, 0), 0)


@pytest.mark.parametrize("shape", FAMILIES)
def test_every_question_is_asked_in_every_vocabulary(shape: Any) -> None:
    questions, lexicon = filled(shape)
    assert questions.gaps() == lexicon.crashes == []
    assert set(questions.asked) == set(lexicon.answers.questions)
    assert all(questions.asked.values())


def test_ops_of_one_constant_are_folded_beside_each_other() -> None:
    """A rule that took ops for equal that agree on some constants was not caught: of forty ops seven were folded."""
    _, lexicon = filled(FAMILIES[0])
    operands = Counter(hs for _, hs, _ in lexicon.rows["fold-op"])
    assert sum(count for count in operands.values() if count > 2) > 20


@pytest.mark.parametrize("shape", FAMILIES[:2])
def test_two_ops_on_one_tensor_are_frozen(shape: Any) -> None:
    """A rule that took all frozen ops for equal was not caught: no two took the same operands."""
    _, lexicon = filled(shape)
    taken = [s.operands for s in lexicon.vocabulary.signatures.values() if s.frozen]
    assert len(set(taken)) < len(taken)


def test_a_new_question_is_fuzzed_with_its_answers(tmp_path: Path) -> None:
    right = fuzz(tmp_path, MIRROR, Mirrors)
    assert right.is_clean, (right.gaps, right.wrong_answers, [(str(r.rule), r.trouble) for r in right.rules])
    assert all(r.instances for r in right.rules)
    wrong = fuzz(tmp_path, MIRROR, FalseMirrors)
    assert any(line.startswith("(mirror ") for line in wrong.wrong_answers)


def test_a_question_that_nobody_answers_is_reported(tmp_path: Path) -> None:
    report = fuzz(tmp_path, MIRROR)
    assert report.gaps == ["(ask-mirror ...) is answered by nobody"]
    asking, using = report.rules
    assert asking.failures
    assert using.trouble == "no instance: (mirror ...) has no rows in any random model"
    assert not report.is_clean


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (MIRROR.replace("((alias y k x)) ((ask", '((is k "no such op")) ((ask'), "was never asked: nothing matches"),
        (MIRROR.replace("((ask-mirror k))", "((live y))"), "(ask-mirror ...) is asked by no rule"),
        (MIRROR.replace(";=", "; "), "(mirror ...), which the host answers, has no meaning to be checked against"),
        ("", "(ask-mirror ...) is answered, but no rule file declares it"),
    ],
)
def test_what_is_not_asked_or_not_checked_is_reported(tmp_path: Path, text: str, gap: str) -> None:
    report = fuzz(tmp_path, text, Mirrors, models=1)
    assert any(gap in line for line in report.gaps), report.gaps
    assert not report.is_clean


def test_a_question_that_follows_from_an_answer_is_asked(tmp_path: Path) -> None:
    text = (
        MIRROR
        + """
(relation ask-again (String String))
(relation again (String String))
;= (again k j) := (=> (ok (at k x)) (ok (at j (at k x))))
(rule ((mirror k j)) ((ask-again k j)) :ruleset logical :name "again?")
"""
    )

    class Again(Mirrors):
        def answer_again(self, view: str, other: str) -> Any:
            return [("again", (view, other))]

    report = fuzz(tmp_path, text, Again)
    assert report.is_clean, (report.gaps, report.wrong_answers, [(str(r.rule), r.trouble) for r in report.rules])
