"""What ``tune`` says at its end."""

from __future__ import annotations

from eqsat_layout.cli.tune import report_table
from eqsat_layout.report.text import plain_text
from eqsat_layout.tuning.tune import TuneReport


def said(before: float, now: float) -> str:
    return plain_text(report_table(TuneReport("here", 3, 0, 0, (), 1.0, cost_before=before, cost=now)))


def test_tune_says_when_it_gained_nothing() -> None:
    assert "nothing" in said(0.010, 0.010)
    assert "nothing" not in said(0.010, 0.009)
    assert "9.00 ms" in said(0.010, 0.009)
