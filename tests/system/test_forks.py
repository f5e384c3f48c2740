"""Forks while other threads are at work."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from programs import program
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.system import forks
from eqsat_layout.system.forks import enter, in_one_piece, leave


def fork() -> int:
    """The exit code of one that ends at once: 0 if nobody else is inside there, and it can be entered."""
    child = os.fork()
    if not child:
        others = [thread for thread in forks._inside.values() if thread != threading.get_ident()]
        with in_one_piece():
            os._exit(len(others))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_for_who_is_inside() -> None:
    """A run of a session that a fork cut in two left TVM's allocator locked there: runs of the fork never ended."""
    said: list[str] = []
    is_inside, goes_on = threading.Event(), threading.Event()

    def run() -> None:
        with in_one_piece():
            is_inside.set()
            goes_on.wait()
            said.append("run")

    def forked() -> None:
        said.append(f"fork {fork()}")

    runner, forker = threading.Thread(target=run), threading.Thread(target=forked)
    runner.start()
    is_inside.wait()
    forker.start()
    while not forks._fork.is_near():
        pass
    late = threading.Thread(target=lambda: (enter(1), said.append("late"), leave(1)))
    late.start()
    assert said == []
    goes_on.set()
    for thread in (runner, forker, late):
        thread.join()
    assert said[0] == "run"
    assert set(said[1:]) == {"fork 0", "late"}
    assert not forks._inside


def test_who_forks_does_not_wait_for_itself() -> None:
    """What handled a signal, or what another library had registered for forks, and ran a session or forked, waited for
    ever for the fork that it was a part of."""
    ended = threading.Event()

    def forks_within_a_fork() -> None:
        forks._before()
        with in_one_piece():
            forks._before()
            forks._after_in_parent()
        with in_one_piece():
            ended.set()
        forks._after_in_parent()

    threading.Thread(target=forks_within_a_fork, daemon=True).start()
    assert ended.wait(5)
    assert fork() == 0


def test_a_fork_from_inside_waits_for_nobody() -> None:
    with in_one_piece():
        assert fork() == 0
        assert len(forks._inside) == 1
    assert not forks._inside


def test_who_never_leaves_is_waited_for_so_long(monkeypatch: Any) -> None:
    """It may wait for the thread that forks."""
    monkeypatch.setattr(forks, "_PATIENCE", 0.0)
    is_inside, goes_on = threading.Event(), threading.Event()

    def stay() -> None:
        with in_one_piece():
            is_inside.set()
            goes_on.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    is_inside.wait()
    assert fork() == 0
    goes_on.set()
    thread.join()


def test_runs_of_a_session_are_inside(monkeypatch: Any) -> None:
    session = eqsat_layout.Session(program(lambda b, x: R.exp(x), (2, 3)))
    entered: list[int] = []
    monkeypatch.setattr("eqsat_layout.session.runs.enter", lambda token: (entered.append(token), enter(token)))
    session.run(None, {"x0": np.ones((2, 3), "float32")})
    assert len(entered) == 1
    assert not forks._inside
