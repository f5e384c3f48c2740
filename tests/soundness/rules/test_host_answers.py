"""Answers of the host are checked too: one that is wrong is found, and said."""

from __future__ import annotations

from typing import Any

import pytest

from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.rules import rule_files
from eqsat_layout.maps import UNDEF, Format
from eqsat_layout.soundness.rules.fuzzer import fuzz_rules
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport


def fuzz(models: int = 3) -> FuzzReport:
    return fuzz_rules(rule_files(), Effort(cases=1, models=models), only=lambda rule: rule.name == "compose")


def test_right_answers() -> None:
    report = fuzz()
    assert report.answers > 100
    assert report.wrong_answers == report.crashes == []


def test_a_wrong_composition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Answers.answer_compose

    def wrong(self: Answers, outer: str, inner: str) -> Any:
        return [(r, row if r != "compose" else (*row[:2], outer)) for r, row in right(self, outer, inner)]

    monkeypatch.setattr(Answers, "answer_compose", wrong)
    assert any(line.startswith("(compose ") for line in fuzz().wrong_answers)


def test_an_inverted_view_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Answers.answer_viewed

    def wrong(self: Answers, view: str, operand: str) -> Any:
        rows = right(self, view, operand)
        shape = self._names.formats[operand].shape
        return [("view", (view, row[1], self._names.format(Format.row_major(shape)))) for _, row in rows]

    monkeypatch.setattr(Answers, "answer_viewed", wrong)
    assert any(line.startswith("(view ") for line in fuzz(6).wrong_answers)


def test_a_fill_that_nobody_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op whose result is said to hold 1 where its kernel leaves undef."""
    right = Answers._flows

    def wrong(self: Answers, signature: Any, name: str, **side: Any) -> Any:
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

    monkeypatch.setattr(Answers, "_flows", wrong)
    assert any("a lie" in line for line in fuzz(8).wrong_answers)


def test_a_host_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Answers, crop: str, pad: str) -> Any:
        raise ValueError("oh")

    monkeypatch.setattr(Answers, "answer_cancel", broken)
    assert any("ask-cancel" in line and "ValueError: oh" in line for line in fuzz().crashes)
