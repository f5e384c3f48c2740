"""Work in a second thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from eqsat_layout.system.second_thread import second_thread


def test_work_that_has_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    begun, may_end = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        assert may_end.wait(10)
        return threading.get_ident()

    with second_thread() as start:
        result = start(work)
        assert begun.wait(10)
        may_end.set()
        assert result() == result() != threading.get_ident()


def test_work_that_nobody_has_begun_is_done_by_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a second thread that gets no core holds nobody up."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    begun, may_end = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        assert may_end.wait(10)

    with second_thread() as start:
        first, second = start(long), start(threading.get_ident)
        assert begun.wait(10)
        assert second() == threading.get_ident()
        may_end.set()
        first()


def test_work_that_nobody_asks_for_is_not_begun_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    begun, may_end, done = threading.Event(), threading.Event(), list[int]()

    def long() -> None:
        begun.set()
        assert may_end.wait(10)

    def interrupted() -> None:
        with second_thread() as start:
            start(long)
            start(lambda: done.append(1))
            assert begun.wait(10)
            threading.Timer(0.05, may_end.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not done


def test_with_one_core_there_is_no_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with second_thread() as start:
        assert start(threading.get_ident)() == threading.get_ident()


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    def fail() -> None:
        raise LookupError("nothing")

    with second_thread() as start:
        result: Callable[[], None] = start(fail)
        for _ in range(2):
            with pytest.raises(LookupError, match="nothing"):
                result()


def test_where_no_thread_can_be_made_who_asks_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that are made while the interpreter ends, or at a limit of threads, were refused with a RuntimeError."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with second_thread() as start:
        assert [start(threading.get_ident)() for _ in range(2)] == [threading.get_ident()] * 2
