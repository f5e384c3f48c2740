"""Processes beside this one: results in order, and a fault costs one argument only."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.system.sigint import start_without_sigint
from eqsat_layout.system.workers import WorkerError, Workers


def squared(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number * number


HERE = os.getpid()


def dies_elsewhere(parent: int) -> str:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done here"


def test_results_come_in_order_and_faults_as_values() -> None:
    workers = Workers(1)
    for _ in range(2):  # the processes are there a second time
        results = workers.map(squared, list(range(12)))
        assert [r for r in results if isinstance(r, int)] == [n * n for n in range(12) if n != 3]
        assert isinstance(results[3], ValueError)
        assert "three" in str(results[3])


def test_without_processes_this_one_does_it_all() -> None:
    assert Workers(0).map(squared, [1, 2]) == [1, 4]
    assert Workers(0).map(squared, []) == []


def test_a_process_that_dies_is_one_result_and_another_takes_its_place() -> None:
    workers = Workers(1)
    results = workers.map(dies_elsewhere, [os.getpid()] * 3)
    assert all(r == "done here" or isinstance(r, WorkerError) for r in results)
    assert workers.map(squared, [4, 5, 6]) == [16, 25, 36]


def blocked(_: int) -> tuple[int, bool]:
    return os.getpid(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_interrupt_at_the_terminal_is_this_process_s_alone() -> None:
    """Each process printed a traceback beside the one line of the command."""
    elsewhere, is_blocked = Workers(1).apart(blocked, 0)
    assert elsewhere != os.getpid()
    assert is_blocked
    assert blocked(0) == (os.getpid(), False)


def say_blocked(pipe: Any) -> None:
    pipe.send(blocked(0))


def test_it_is_where_processes_are_of_multiprocessing() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=say_blocked, args=(theirs,), daemon=True)
    start_without_sigint(process)
    assert ours.recv() == (process.pid, True)
    assert blocked(0) == (os.getpid(), False)
    process.join()


HALF_A_JOB = "w._idle[0]._start(); w._idle[0]._writer.write(bytes([9, 0, 0, 0, 128])); w._idle[0]._writer.flush()"


@pytest.mark.parametrize("begun", ["w.start(dict)", HALF_A_JOB])
def test_a_process_that_is_not_waited_for_ends_without_a_word(begun: str, tmp_path: Path) -> None:
    """It printed a traceback where the command had ended before it, and where that ended while it was given a job."""
    code = f"from eqsat_layout.system.workers import Workers; import os; w = Workers(1); {begun}; os._exit(0)"
    place = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=place)
    assert done.stderr == ""  # the process holds this pipe, so its end has been waited for
    assert not list(tmp_path.iterdir())


def wait_for(started: Path, in_vain: Path) -> None:
    end = time.monotonic() + 10
    while not started.exists():
        if time.monotonic() > end:
            in_vain.touch()
            return
        time.sleep(0.01)


def test_starting_does_not_wait(tmp_path: Path) -> None:
    """It waited until each process had imported TVM: a second of every first compile."""
    workers, started, in_vain = Workers(1), tmp_path / "started", tmp_path / "in_vain"
    workers.start(partial(wait_for, started, in_vain))
    started.touch()
    assert not in_vain.exists()
    assert workers.apart(squared, 5) == 25  # and not the answer to what it was started with


def test_one_of_the_processes_does_something_further(tmp_path: Path) -> None:
    """The version of the code, which takes a second, is on disk by the time that it is asked for."""
    workers = Workers(2)
    workers.start(os.getpid, partial(tempfile.mkstemp, dir=tmp_path))
    assert workers.map(squared, [1, 2, 4]) == [1, 4, 16]
    workers.start(os.getpid, partial(tempfile.mkstemp, dir=tmp_path))  # they have started
    for number in (4, 5):
        assert workers.apart(squared, number) == number * number
    assert len(list(tmp_path.iterdir())) == 1


def write_and_wait(_: int) -> None:
    Path(tempfile.mkdtemp(), "kernel.o").touch()
    Path(os.environ["TMPDIR"]).with_name("written").touch()
    time.sleep(30)


def test_a_process_that_is_killed_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compile that was interrupted left a folder with half of a kernel in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    late = Workers(1, patience=1.0)
    assert isinstance(late.map_apart(write_and_wait, [0])[0], WorkerError)
    assert (tmp_path / "written").exists()
    del late
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def cannot_start() -> None:
    raise ValueError("no")


def test_an_answer_belongs_to_its_question_when_the_start_has_failed() -> None:
    workers = Workers(1)
    workers.start(cannot_start)
    assert [workers.apart(squared, n) for n in (5, 6)] == [25, 36]


def test_processes_work_while_this_one_does_something_else() -> None:
    workers, found = Workers(1), dict[int, int | Exception]()
    with workers.ahead(squared, found.__setitem__) as give:
        for number in (5, 3, 6):
            give(number)
        while len(found) < 3:
            time.sleep(0.01)
    workers.settle()
    assert (found[0], found[2]) == (25, 36)
    assert isinstance(found[1], ValueError)
    assert workers.map(squared, [1, 2]) == [1, 4]


def test_what_is_not_begun_is_left() -> None:
    workers, found = Workers(1), dict[int, int | Exception]()
    with workers.ahead(squared, found.__setitem__) as give:
        for number in range(10_000):
            give(number + 10)
    workers.settle()
    assert len(found) < 10_000
    assert workers.apart(squared, 5) == 25
    with Workers(0).ahead(squared, found.__setitem__) as give:
        give(1)


def test_processes_log_from_the_level_that_this_one_does() -> None:
    """TVM's log everything from INFO on to the standard error: notes of kernels that nobody had asked for."""
    assert Workers(1).apart(_level, 0) == logging.getLogger().level


def _level(_: int) -> int:
    return logging.getLogger().level
