"""The command ``fuzz-programs``: what is said when it is stopped, and when nothing was compared."""

from __future__ import annotations

import io
import os
import signal
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from eqsat_layout.cli.fuzz import run_fuzz_programs
from eqsat_layout.soundness.programs.outcomes import (
    FAILED,
    SAME,
    UNRUN,
    ProgramFailure,
    ProgramOutcome,
    ProgramReport,
)

FUZZER = "eqsat_layout.soundness.programs.fuzzer.fuzz_programs"


def test_a_run_that_is_stopped_says_what_it_found() -> None:
    """``timeout 420 eqsat-layout fuzz-programs --seconds 420`` left an empty output, failures and all."""

    def stopped(seconds: Any, cases: Any, seed: int, jobs: int, on_progress: Any, *rest: Any) -> ProgramReport:
        report = ProgramReport(seed, failures=[ProgramFailure(7, "memory", "reads beyond", "def main", ())])
        report.add(ProgramOutcome(FAILED, "memory"))
        on_progress(report, 0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("SIGTERM was not heard")

    output = io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with patch(FUZZER, stopped), pytest.raises(SystemExit) as ended:
        run_fuzz_programs(5.0, None, 0, 1, (), Console(file=output))
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    said = output.getvalue()
    assert "memory: reads beyond" in said
    assert "1 failed" in said


def test_that_nothing_was_compared_is_said_and_is_no_failure() -> None:
    """TVM could not build the only program of a short run, which then ended with exit code 1."""
    report = ProgramReport(0)
    report.add(ProgramOutcome(UNRUN, text="TVM can't build the input: Expected buffer index to be an integer"))
    assert report.is_clean
    assert "1 times TVM can't build the input" in str(report)
    assert "no program was compared" in str(report)
    report.add(ProgramOutcome(SAME))
    assert "no program was compared" not in str(report)
