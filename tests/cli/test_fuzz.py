"""The commands ``fuzz`` and ``fuzz-programs``: what is said when they are stopped, and when nothing was compared."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from eqsat_layout.cli.fuzz import FuzzOptions, run_fuzz, run_fuzz_programs
from eqsat_layout.soundness.programs.outcomes import (
    FAILED,
    SAME,
    UNRUN,
    ProgramFailure,
    ProgramOutcome,
    ProgramReport,
)
from eqsat_layout.soundness.rules.jobs import fuzz_in_processes
from eqsat_layout.soundness.rules.reports import Effort, FuzzReport

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


TWO_RULES = """\
(rule ((= y (Op k (Arg x (End)))) (is k "relax.abs")) ((union y x)) :ruleset logical :name "no sign")
(rule ((= y (Op k (Arg x (End)))) (is k "relax.abs") (is k "pad")) ((union y x)) :ruleset logical :name "never both")
"""


class StoppedOutput(io.StringIO):
    """Whoever writes to it next gets the signal if it ``is_stopped``."""

    is_stopped = False

    def write(self, text: str) -> int:
        if self.is_stopped:
            self.is_stopped = False
            signal.raise_signal(signal.SIGTERM)
        return super().write(text)


@pytest.mark.parametrize("sent", [1, 2])
def test_rules_that_were_fuzzed_until_the_run_was_stopped_are_told_of(tmp_path: Path, sent: int) -> None:
    """Nothing was printed; ``timeout`` sends the signal to the process and, once more, to its group."""
    path = tmp_path / "rules.egg"
    path.write_text(TWO_RULES)

    def stopped(paths: Any, effort: Any, seed: int, only: Any, jobs: int, on_progress: Any) -> FuzzReport:
        def note(found: FuzzReport, share: float) -> None:
            on_progress(found, share)
            if found.models:
                output.is_stopped = sent == 2
                signal.raise_signal(signal.SIGTERM)

        return fuzz_in_processes(paths, effort, seed, only, jobs, note)

    output = StoppedOutput()
    before = signal.getsignal(signal.SIGTERM)
    options = FuzzOptions([path], Effort(models=50), 0, 1, prove=False)
    with patch("eqsat_layout.cli.fuzz.fuzz_in_processes", stopped), pytest.raises(SystemExit) as ended:
        run_fuzz(options, Console(file=output, width=120))
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert "UNSOUND" in output.getvalue()
    assert "no instance until it was stopped" in output.getvalue()
    assert "0 of 2 rules without a counterexample" in output.getvalue()
