"""The program fuzzer on targets: programs are compiled as a whole and run there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat_layout.errors import TargetError
from eqsat_layout.passes import guarded_divisions
from eqsat_layout.soundness.programs import trial
from eqsat_layout.soundness.programs.check import ProgramRun, case_difference
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.fuzzer import fuzz_programs, main
from eqsat_layout.soundness.programs.generator import make_program
from eqsat_layout.soundness.programs.on_targets import TargetPair, running
from eqsat_layout.soundness.programs.outcomes import FAILED, SAME, ProgramFailure
from eqsat_layout.soundness.programs.trial import check_program
from eqsat_layout.validation.inputs import NORMAL, SPECIAL


@pytest.mark.parametrize("target", ["cuda", {"kind": "opencl", "profile": "pocl"}, "llvm"])
@pytest.mark.parametrize("seed", [2, 3])
def test_programs_are_compiled_and_run_on_targets(target: Any, seed: int) -> None:
    outcome = check_program(Choices.of_seed(seed), seed, target=target)
    assert outcome.kind == SAME, outcome.why + outcome.text


def test_what_a_target_gets_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(executable: Any, target: Any, seed: int) -> Any:
        right = running(executable, target, seed)

        def run(name: str, inputs: Sequence[Any]) -> Any:
            return [~one if one.dtype == bool else one + one.dtype.type(1) for one in right(name, inputs)]

        return run

    monkeypatch.setattr(trial, "running", wrong)
    outcome = check_program(Choices.of_seed(2), 2, target="cuda")
    assert outcome.kind == FAILED
    assert "numbers" in outcome.why


def test_divisions_that_go_by_the_range_of_what_wraps_around_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program in four is of steps that show such faults, which devices had for long."""
    monkeypatch.setattr(guarded_divisions, "_divided", lambda kind, a, b: kind(a, b))
    outcome = check_program(Choices.of_seed(77021), 77021, target="cuda")
    assert (outcome.kind, outcome.why) == (FAILED, "normal numbers")


def test_processes_fuzz_targets_too() -> None:
    report = fuzz_programs(cases=1, seed=0, target="llvm")
    assert report.compared == 1


def test_a_target_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TargetError, match="sm_12"):
        fuzz_programs(cases=1, target={"kind": "cuda", "arch": "sm_12"})


def test_a_failure_says_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    failure = ProgramFailure(7, "numbers", "", "", (), {"kind": "cuda", "arch": "sm_90"})
    assert failure.command.endswith("""fuzzer 7 --target '{"kind": "cuda", "arch": "sm_90"}'""")
    assert main(["2", "--target", '{"kind": "cuda", "arch": "sm_90"}']) == 0
    assert "seed 2: same" in capsys.readouterr().out


@pytest.mark.parametrize("approx", [True, False])
def test_kernels_that_need_not_be_exact_are_asked_for_no_special_numbers(
    monkeypatch: pytest.MonkeyPatch, approx: bool
) -> None:
    """Also where the planner is offered nothing: kernels are what the target makes of it."""
    asked: list[str] = []
    made = TargetPair.cases

    def cases(pair: TargetPair, seed: int, kinds: Sequence[str]) -> Any:
        asked.extend(kinds)
        return made(pair, seed, kinds)

    monkeypatch.setattr(TargetPair, "cases", cases)
    found = make_program(Choices.of_seed(2), known_sizes=True)
    options = {**found.options, "candidates": False, "approx": approx}
    monkeypatch.setattr(trial, "make_program", lambda _, **__: replace(found, options=options))
    assert check_program(Choices.of_seed(2), 2, target="cuda").kind == SAME
    assert (SPECIAL in asked) is not approx


def test_steps_of_bfloat16_that_are_kept_wider_are_no_fault_of_a_target() -> None:
    """A product of 48 numbers was called wrong: TVM rounds it 47 times."""
    one = np.arange(1, 9).astype(ml_dtypes.bfloat16)
    near, far = (one * one.dtype.type(factor) for factor in (1.03, 1.5))
    for kind, special in ((NORMAL, one), (SPECIAL, np.where(one > 4, one.dtype.type(np.nan), one))):
        case = ProgramRun("main", kind, [], [special], [near if kind == NORMAL else special], [False])
        assert case_difference(case, 0, tolerances=TargetPair.tolerances) == ""
    assert case_difference(replace(case, kind=NORMAL, after=[far]), 0, tolerances=TargetPair.tolerances)
    assert case_difference(ProgramRun("main", NORMAL, [], [one], [near], [False]), 0)
