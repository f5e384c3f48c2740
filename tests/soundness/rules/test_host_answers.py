"""Answers of the host are checked too: one that is wrong is found, and said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.maps import UNDEF, Format
from eqsat_layout.soundness.rules import terms
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport


def fuzz(models: int) -> FuzzReport:
    return fuzz_rules(rule_files(), Effort(cases=1, models=models), only=lambda rule: rule.name == "compose")


def wrong_composition(right: Any, self: Answers, outer: str, inner: str) -> Any:
    return [(r, row if r != "compose" else (*row[:2], outer)) for r, row in right(self, outer, inner)]


def inverted_view(right: Any, self: Answers, view: str, operand: str) -> Any:
    rows = right(self, view, operand)
    shape = self._names.formats[operand].shape
    return [("view", (view, row[1], self._names.format(Format.row_major(shape)))) for _, row in rows]


def fill_that_nobody_writes(right: Any, self: Answers, signature: Any, name: str, **side: Any) -> Any:
    """An op whose result is said to hold 1 where its kernel leaves undef."""
    found = []
    for result, rows in right(self, signature, name, **side):
        variant = self._names.variants[rows[0][1][2]]
        fmt = self._names.formats.get(variant.result)
        if fmt is None or fmt.fill is not UNDEF or variant.flow is None:
            found.append((result, rows))
            continue
        stronger = self._names.format(fmt.with_fill(1.0))
        lie = self._names.variant(signature.key, variant.operands, [stronger], variant.flow, "a lie")
        found.append((stronger, [("back", (signature.key, stronger, lie.key, rows[0][1][3])), *rows[1:]]))
    return found


def broken(right: Any, self: Answers, crop: str, pad: str) -> Any:
    raise ValueError("oh")


LIES = {
    "answer_compose": wrong_composition,
    "answer_viewed": inverted_view,
    "_flows": fill_that_nobody_writes,
    "answer_cancel": broken,
}
"""Each answers questions of its own, so that each is found beside the others."""


def test_right_answers() -> None:
    report = fuzz(models=3)
    assert report.answers > 100
    assert report.wrong_answers == report.crashes == []


def test_an_answer_that_takes_too_long_to_check_is_left_to_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """``fuzz --seconds 600`` ended with a traceback after half a minute: in its 45th model."""
    checked = fuzz(models=1).answers
    monkeypatch.setattr(terms, "_LOOKED_AT", 0)
    report = fuzz(models=1)
    assert 0 < report.answers < checked
    assert report.wrong_answers == report.crashes == []


@pytest.fixture(scope="module")
def lied_to() -> Iterator[FuzzReport]:
    with pytest.MonkeyPatch.context() as patch:
        for name, lie in LIES.items():
            patch.setattr(Answers, name, in_place_of(lie, getattr(Answers, name)))
        yield fuzz(models=8)


def in_place_of(lie: Any, right: Any) -> Any:
    return lambda self, *given, **named: lie(right, self, *given, **named)


@pytest.mark.parametrize("said", ["(compose ", "(view ", "a lie"])
def test_a_wrong_answer_is_found(lied_to: FuzzReport, said: str) -> None:
    assert any(said in line for line in lied_to.wrong_answers)


def test_a_host_that_raises_is_found(lied_to: FuzzReport) -> None:
    assert any("ask-cancel" in line and "ValueError: oh" in line for line in lied_to.crashes)
