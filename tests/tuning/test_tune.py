"""Tuning from outside: what is measured and kept, what a tuned plan is made of, and what becomes of interruptions."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from programs import constant, program
from tuning.small_programs import contractions, convolution, product, stored
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout.cost.database import Database
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.errors import EqsatError, MalformedModuleError, TargetError
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.steps import Convert, Run
from eqsat_layout.maps import Format
from eqsat_layout.notes import STRICT_VARIABLE
from eqsat_layout.planning.plan_space import PlanSpace
from eqsat_layout.system.folder import LOCATION
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.registry import target
from eqsat_layout.tuning.measure import MeasurableKernel, copy_kernel, op_kernel
from eqsat_layout.tuning.probe import Here, Loaded, Probe
from eqsat_layout.tuning.remote import Remote
from eqsat_layout.tuning.tune import TuneInterrupt, TuneReport, TuneState, tune


@dataclass
class Tuned:
    """One tuning of a program: into which database, what came of it, and what was said on the way."""

    mod: Any
    directory: Path
    report: TuneReport
    states: list[TuneState]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    directory, states = tmp_path_factory.mktemp("tuned"), list[TuneState]()
    mod = convolution()
    return Tuned(mod, directory, tune(mod, database=directory, progress=states.append), states)


# ---- what is measured ------------------------------------------------------------------------------------------------


def test_every_contraction_is_measured_in_every_layout_also_inside_of_other_algorithms(tuned: Tuned) -> None:
    space = PlanSpace(tuned.mod, target(), {})
    wanted, found = contractions(space), stored(tuned.directory)
    assert len(wanted) >= 4
    assert any("matmul" in name or "winograd" in name for name in wanted.values()), wanted
    assert set(wanted) <= set(found)
    assert {found[i] for i in range(len(wanted))} == set(wanted), "they come first"
    assert len(found) > len(wanted), "then what else plans are made of"


def test_nothing_is_measured_twice(tuned: Tuned) -> None:
    found = stored(tuned.directory)
    assert len(set(found)) == len(found) == tuned.report.measured
    before = Database(tuned.directory).path.read_bytes()
    again = tune(tuned.mod, database=tuned.directory)
    assert Database(tuned.directory).path.read_bytes() == before
    assert (again.measured, again.left, again.failures) == (0, 0, ())
    assert again.known >= len(contractions(PlanSpace(tuned.mod, target(), {})))
    assert again.cost == again.cost_before == tuned.report.cost


def test_the_report_and_the_states_say_how_far_it_is(tuned: Tuned) -> None:
    report, states = tuned.report, tuned.states
    assert (report.known, report.left, report.failures, report.notes) == (0, 0, (), ())
    assert report.machine == target().name
    assert [s.done for s in states] == sorted(s.done for s in states)
    assert [s.total for s in states] == sorted(s.total for s in states)
    assert [s.seconds for s in states] == sorted(s.seconds for s in states)
    assert states[-1].done == states[-1].total == report.measured
    assert sum(bool(s.kernel) for s in states) == report.measured
    assert any(s.kernel.startswith("nn.conv2d 1x16x12x12 NHWC") for s in states)


def kernels_of(space: PlanSpace, costs: Any) -> list[MeasurableKernel]:
    found: list[MeasurableKernel | None] = []
    for choice in space.best(costs):
        for step in choice.steps.steps:
            if isinstance(step, Run) and not space.signatures[step.signature].parts:
                formats = () if step.flow is None else (step.flow.operands, step.flow.results)
                found.append(op_kernel(space.signatures[step.signature], *formats))
            elif isinstance(step, Convert) and not step.before.serves_as(step.after):
                found.append(copy_kernel(step.type, step.before, step.after))
    assert None not in found
    return [kernel for kernel in found if kernel is not None]


def test_the_tuned_plan_is_made_of_measured_kernels(tuned: Tuned) -> None:
    assert tuned.report.modelled == ()
    space = PlanSpace(tuned.mod, target(), {})
    kernels = kernels_of(space, tuned.report.costs)
    assert len(kernels) >= 2
    assert {(k.key.computation, *k.key.formats) for k in kernels} <= set(stored(tuned.directory))
    assert tuned.report.cost is not None
    assert tuned.report.cost_before is not None
    assert 0 < tuned.report.cost <= tuned.report.cost_before


class Flattering:
    """Whatever was not measured takes no time worth naming."""

    def run(self, op: Signature, operands: Any, results: Any, *, fused: frozenset[int] = frozenset()) -> float:
        return 2e-9 if results[0].is_row_major else 1e-9

    def convert(self, tensor: TensorType, source: Format, target: Format, *, fused: bool = False) -> float:
        return 1e-9

    def constant(self, tensor: TensorType, fmt: Format) -> float:
        return 0.0


def test_no_modelled_kernel_wins_by_optimism(tmp_path: Path) -> None:
    report = tune(product(), database=tmp_path, cost_model=Flattering())
    assert report.modelled == ()
    assert report.measured > 2
    assert report.cost is not None
    assert report.cost > 1e-7


def test_compile_plans_with_what_was_measured(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    mod = prepared(tuned.mod)
    assert eqsat_layout.plan(mod, cost_model=tuned.report.costs).cost == pytest.approx(tuned.report.cost)
    monkeypatch.setenv(LOCATION, str(tuned.directory))
    assert eqsat_layout.plan(mod).cost == pytest.approx(tuned.report.cost)


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_no_time_is_no_kernel(tmp_path: Path) -> None:
    report = tune(convolution(1), database=tmp_path / "cache", seconds=0)
    assert (report.measured, report.known) == (0, 0)
    assert report.left >= len(contractions(PlanSpace(convolution(1), target(), {}))) >= 2
    assert len(report.modelled) >= 2
    assert report.cost == report.cost_before
    assert not (tmp_path / "cache").exists()


def test_time_that_is_up_ends_it_after_the_kernel_at_work(tmp_path: Path) -> None:
    def slow(state: TuneState) -> None:
        time.sleep(max(0.0, 3.0 - state.seconds) if state.kernel else 0.0)

    report = tune(product(), database=tmp_path, seconds=3.0, progress=slow)
    assert report.measured == len(stored(tmp_path)) == 1
    assert report.left > 0
    assert report.cost is not None


@dataclass
class Picky(Here):
    """This machine, with something done instead of every program whose first operand has ``shape``."""

    shape: tuple[int, ...]
    instead: Callable[[], Any]
    met: list[None] = field(default_factory=list)
    asked_approx: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(target())

    def load(self, executable: Any, operands: Sequence[npt.NDArray[Any]]) -> Loaded:
        if operands[0].shape == self.shape:
            self.met.append(None)
            self.instead()
        return super().load(executable, operands)


class Lent(Remote):
    """A device that is this machine."""

    device: Picky

    def runner(self, target: Any = None, *, approx: bool = True) -> Any:
        self.device.asked_approx.append(approx)
        return self.device


def lent(device: Picky) -> Lent:
    remote = Lent("nowhere", 1, "none")
    object.__setattr__(remote, "device", device)
    return remote


def test_a_device_elsewhere_is_told_whether_arithmetic_is_to_be_exact(tmp_path: Path) -> None:
    device = Picky((), lambda: None)
    tune(product(), database=tmp_path, remote=lent(device), seconds=0)
    tune(product(), database=tmp_path, remote=lent(device), seconds=0, approx=False)
    assert device.asked_approx == [True, False]


def test_a_kernel_that_fails_is_noted_and_not_tried_again(tmp_path: Path) -> None:
    def refuse() -> None:
        raise EqsatError("no unit for this")

    device = Picky((1, 12, 12, 16), refuse)  # a convolution in NHWC
    states: list[TuneState] = []
    report = tune(convolution(), database=tmp_path, remote=lent(device), progress=states.append)
    assert {failure.reason for failure in report.failures} == {"no unit for this"}
    assert len({failure.kernel for failure in report.failures}) == len(report.failures) == len(device.met) >= 1
    assert "nn.conv2d 1x16x12x12 NHWC" in {failure.kernel for failure in report.failures}
    assert report.left == 0
    assert report.measured == len(stored(tmp_path)) > 3
    assert states[-1].done == states[-1].total


def test_what_tvm_says_of_a_kernel_is_its_reason_and_no_row_of_carets(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RuntimeError("no such intrinsic\n    y[i] = f(x[i])\n           ^^^^^^^\n")

    report = tune(convolution(), database=tmp_path, remote=lent(Picky((1, 12, 12, 16), refuse)))
    reasons = {failure.reason for failure in report.failures}  # how many kernels have that shape depends on the times
    assert "relax.nn.conv2d: can't be built and run: RuntimeError: no such intrinsic" in reasons
    assert {reason.partition(": ")[2] for reason in reasons} == {
        "can't be built and run: RuntimeError: no such intrinsic"
    }


def test_a_fault_while_measuring_is_logged_and_raised_in_strict_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slip() -> None:
        raise AssertionError("a slip of ours")

    device = Picky((1, 12, 12, 16), slip)
    with pytest.raises(EqsatError, match="can't be measured: AssertionError: a slip of ours"):
        tune(convolution(), database=tmp_path, remote=lent(device))
    monkeypatch.setenv(STRICT_VARIABLE, "0")
    report = tune(convolution(), database=tmp_path, remote=lent(device))
    assert {failure.reason for failure in report.failures} == {"AssertionError: a slip of ours"}
    assert "a slip of ours" in caplog.text
    assert report.left == 0


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_kernel_with_a_scalar_operand_is_measured(dtype: str, tmp_path: Path) -> None:
    scalar = relax.const(3, dtype)
    mod = program(lambda builder, x: op.add(x, scalar), (4, 5), dtype=dtype)
    report = tune(mod, database=tmp_path)
    assert report.failures == ()
    assert (report.measured, report.left) == (1, 0)


def test_a_device_that_is_lost_ends_it(tmp_path: Path) -> None:
    def vanish() -> None:
        raise TargetError("the device is gone")

    with pytest.raises(TargetError, match="the device is gone"):
        tune(product(), database=tmp_path, remote=lent(Picky((5, 32), vanish)))


def test_an_interruption_says_what_was_done(tmp_path: Path) -> None:
    states: list[TuneState] = []

    def interrupting(state: TuneState) -> None:
        states.append(state)
        if sum(bool(s.kernel) for s in states) == 2:
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        tune(product(), database=tmp_path, progress=interrupting)
    assert isinstance(caught.value, TuneInterrupt)
    report = caught.value.report
    assert report.measured == len(stored(tmp_path)) == 1
    assert report.left == states[-1].total - 1 > 0
    assert (report.cost, report.costs) == (None, None)
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_interruption_that_a_build_takes_for_a_failure_is_one(tmp_path: Path) -> None:
    def swallow() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise EqsatError("the build failed") from None

    with pytest.raises(TuneInterrupt) as caught:
        tune(product(), database=tmp_path, remote=lent(Picky((5, 32), swallow)))
    assert caught.value.report.failures == ()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EqsatError, match="seconds must be a number of seconds, got -1"):
        tune(product(), database=tmp_path, seconds=-1)
    with pytest.raises(MalformedModuleError, match=r"expected a tvm\.IRModule, a path, .* got int"):
        tune(3, database=tmp_path)
    with pytest.raises(TypeError, match="unexpected option 'approximate'"):
        tune(product(), database=tmp_path, approximate=True)  # type: ignore[call-arg]
    with pytest.raises(TargetError, match="this machine does not run it"):
        tune(product(), {"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "mcpu": "generic-rv64"})
    with pytest.raises(TargetError, match="has 2 groups of physical axes, but it holds 1"):
        tune(convolution(), database=tmp_path, desired_layouts={"relax.nn.conv2d": ["NCHW|4c", "OIHW4i4o"]})
    assert os.listdir(tmp_path) == []


def test_notes_are_those_of_planning(tmp_path: Path) -> None:
    """Of rules that are stopped, which tuning kept to itself, and of layouts for an op that is not there."""
    options: dict[str, Any] = {"limits": Limits(nodes=1), "desired_layouts": {"relax.nn.conv1d": ["NCW", "OIW"]}}
    report = tune(product(), database=tmp_path / "cache", seconds=0, **options)
    assert report.notes == eqsat_layout.plan(prepared(product()), **options).notes
    for part in ("'relax.nn.conv1d' have nothing to be given to", "limit of 1 new nodes"):
        assert any(part in note for note in report.notes), report.notes


def test_what_has_no_one_time_is_only_modelled(tmp_path: Path) -> None:
    body = lambda builder, x: builder.emit(op.nn.relu(builder.emit(op.matmul(x, constant(32, 48)))))  # noqa: E731
    report = tune(program(body, (tirx.Var("n", "int64"), 32)), database=tmp_path)
    assert report.modelled == ("relax.matmul", "relax.nn.relu")
    assert (report.measured, report.left, report.failures) == (0, 0, ())


def test_a_slow_kernel_is_run_alone() -> None:
    class Vast(Here):
        """Every kernel is to be run as often as that ever is, so that its operands are cold."""

        def __init__(self) -> None:
            super().__init__(target({"kind": "llvm", "num-cores": 1}))
            self.cache_bytes = 1 << 50

    def kernels(size: int) -> int:
        operand = np.ones((size, size), "float32")
        with Probe("product", lambda _, xs: op.matmul(*xs), [operand] * 2, operand.nbytes, Vast()) as probe:
            assert min(probe.times(1)) > 0
            return probe.kernels

    assert kernels(16) == 64
    assert kernels(1024) == 1


def test_what_was_made_by_this_version_is_what_counts(tuned: Tuned) -> None:
    snapshot = Database(tuned.directory).read()
    assert snapshot.has_kernels
    computation = stored(tuned.directory)[0][0]
    assert snapshot.kernels(target().name, target().version, computation)
    assert not snapshot.kernels(target().name, "0.0", computation)
