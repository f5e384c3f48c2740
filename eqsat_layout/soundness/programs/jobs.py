"""The processes of the program fuzzer.

In: an effort and a seed. Out: a :class:`ProgramReport`. Each process is looked after by a thread that hands it one
program at a time, and shrinks the program there if it fails; so a process that dies takes nothing with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import STRICT_VARIABLE
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.outcomes import FAILED, ProgramFailure, ProgramOutcome, ProgramReport, Progress
from eqsat_layout.soundness.programs.shrink import TRIES, shrunk
from eqsat_layout.soundness.programs.trial import check_program, program_of
from eqsat_layout.system.sigint import start_without_sigint

STRIDE: Final = 1_000_000
"""Between the first programs of two seeds of the fuzzer."""
PATIENCE: Final = 60.0
"""Seconds of a process's work, or of its doing nothing, after which a program hangs. On a busy machine they are longer:
what else runs there is no fault of the program."""
PATIENCE_WITH_TARGETS: Final = 300.0
"""The same where it is compiled for a target: a simulator is compiled first."""
IMPATIENCE: Final = 6.0
"""The same while a program that hangs is made smaller."""
TRIES_OF_HANGS: Final = 12
"""Programs that are tried for a smaller one that hangs."""
_IDLE: Final = 0.01
"""Share of the processor below which a process does nothing."""
_READY: Final = (psutil.STATUS_RUNNING, psutil.STATUS_STOPPED)
"""What a process is that others leave no time, or that someone stopped for a while."""
_ENVIRONMENT: Final = {"TVM_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""One thread per process; and below, no costs that were measured on this machine, so that a seed says it all."""


_HANGS: Final = "no answer: it hangs, or takes very long"
Rules = tuple[str | Path, ...]


def run_jobs(
    seconds: float | None,
    cases: int | None,
    seed: int,
    jobs: int,
    on_progress: Progress,
    rules: Rules,
    target: Any = None,
) -> ProgramReport:
    """Fuzzes so many ``seconds`` or programs in ``jobs`` processes."""
    fuzzing = _Fuzzing(seconds, cases, seed, on_progress, lambda: Worker(rules, target))
    lanes = [threading.Thread(target=fuzzing.lane, daemon=True) for _ in range(max(1, jobs))]
    with _environment():
        for lane in lanes:
            lane.start()
        try:
            for lane in lanes:
                while lane.is_alive():
                    lane.join(0.5)
        finally:  # who is interrupted still has the report, from ``on_progress``
            fuzzing.report.seconds = time.perf_counter() - fuzzing.start
            fuzzing.stop()
    if fuzzing.error is not None:
        raise fuzzing.error
    fuzzing.report.failures.sort(key=lambda f: f.seed)
    return fuzzing.report


@contextmanager
def _environment() -> Iterator[None]:
    wanted = _ENVIRONMENT | {"EQSAT_LAYOUT_CACHE": os.path.join(tempfile.gettempdir(), "eqsat_layout_no_cache")}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Fuzzing:
    """What the threads share."""

    def __init__(
        self,
        seconds: float | None,
        cases: int | None,
        seed: int,
        on_progress: Progress,
        worker: Callable[[], Worker],
    ):
        self.report = ProgramReport(seed)
        self.start = time.perf_counter()
        self.error: BaseException | None = None
        self._seconds, self._cases, self._on_progress = seconds, cases, on_progress
        self._next, self._worker = 0, worker
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._workers: list[Worker] = []
        self._stopped = False

    def lane(self) -> None:
        worker = self._worker()
        self._workers.append(worker)
        try:
            while (seed := self._seed()) is not None:
                self._note(seed, worker.ask(None, seed), worker)
        except BaseException as error:  # raised by the thread that waits for this one
            if not self._stopped:
                self.error = error
        finally:
            worker.close()

    def stop(self) -> None:
        self._stopped = True
        for worker in self._workers:
            worker.close()

    def _share(self) -> float:
        passed = time.perf_counter() - self.start
        of_time = passed / self._seconds if self._seconds else 0.0
        return max(of_time, self.report.programs / self._cases if self._cases else 0.0)

    def _seed(self) -> int | None:
        with self._lock:
            late = self._seconds is not None and time.perf_counter() - self.start >= self._seconds
            if late or self._stopped or (self._cases is not None and self._next >= self._cases):
                return None
            self._next += 1
            return self.report.seed * STRIDE + self._next - 1

    def _note(self, seed: int, outcome: ProgramOutcome, worker: Worker) -> None:
        is_new = outcome.kind == FAILED and outcome.why not in self._known
        with self._lock:
            self.report.add(outcome)
            self._known |= {outcome.why} if is_new else set()
            if is_new:  # in the report before it is made smaller, which takes long: the run may be stopped meanwhile
                self.report.failures.append(_failure(outcome, seed, worker))
            self._on_progress(self.report, min(self._share(), 1.0))
        if is_new:  # one of a kind is made smaller, and shown
            usual = worker.patience
            hangs = outcome.why == _HANGS
            worker.patience = IMPATIENCE if hangs else usual
            smallest = shrunk(outcome, seed, worker.ask, TRIES_OF_HANGS if hangs else TRIES)
            worker.patience = usual
            with self._lock:
                others = [failure for failure in self.report.failures if failure.seed != seed]
                self.report.failures = [*others, _failure(smallest, seed, worker)]


def _failure(outcome: ProgramOutcome, seed: int, worker: Worker) -> ProgramFailure:
    return ProgramFailure(seed, outcome.why, outcome.text, outcome.program, outcome.record, worker.target)


class Worker:
    """A process that checks programs, one at a time; started when it is needed, and again when it has died."""

    def __init__(self, rules: Rules = (), target: Any = None) -> None:
        self.patience = PATIENCE if target is None else PATIENCE_WITH_TARGETS
        self._rules, self.target = rules, target
        self._process: Any = None
        self._pipe: Any = None

    def ask(self, record: Sequence[int] | None, seed: int) -> ProgramOutcome:
        """What comes of the program of ``record``, by default that of ``seed``."""
        try:
            if self._process is None:
                self._start()
            self._pipe.send((record, seed, self._rules, self.target))
            if self._answers(self.patience):
                outcome: ProgramOutcome = self._pipe.recv()
                return outcome
            why = _HANGS
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join(5)
            why = f"the process died of {_cause(self._process.exitcode)}"
        self.close()
        choices = Choices.of_seed(seed) if record is None else Choices.of_record(record)
        program = program_of(choices, seed, self.target)
        return ProgramOutcome(FAILED, why, "", tuple(choices.record), tuple(choices.spans), program.text())

    def _answers(self, patience: float) -> bool:
        """Whether there is an answer before ``patience`` ends: it does when the process worked that long, or did
        nothing for that long, though nothing else kept it from that."""
        begin = worked = _worked(self._process.pid)
        while not self._pipe.poll(patience):
            before, worked = worked, _worked(self._process.pid)
            is_idle = worked - before < _IDLE * patience and _sleeps(self._process.pid)
            if worked - begin >= patience or is_idle:
                return False
        return True

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        start_without_sigint(self._process)
        other.close()
        if not self._answers(PATIENCE):
            self.close()
            raise EqsatError(f"a process that checks programs was not ready after {PATIENCE:g} s of its own work")
        self._pipe.recv()

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join(5)
            self._pipe.close()


def _worked(process: int) -> float:
    """Seconds of the processor that a process had so far; 0 where the system does not say."""
    try:
        times = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def _sleeps(process: int) -> bool:
    """Whether a process waits for something else than the processor, and those that it started do, too."""
    try:
        own = psutil.Process(process)
        return all(one.status() not in _READY for one in (own, *own.children(recursive=True)))
    except psutil.NoSuchProcess:
        return True


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _serve(pipe: Any) -> None:
    """Answers until the other end is gone. What TVM writes is nobody's to read. What is otherwise worked around is a
    failure: kernels that are not scheduled for a fault are right, and hide it."""
    os.environ.setdefault(STRICT_VARIABLE, "1")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    pipe.send("ready")
    while True:
        try:
            record, seed, rules, target = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        choices = Choices.of_seed(seed) if record is None else Choices.of_record(record)
        pipe.send(check_program(choices, seed, rules, target=target))
