"""A function in a process that may be lost, for so many seconds of processor time.

In: a process, a function and its argument, seconds. Out: what it gives, or why it gives nothing. Time on the clock says
nothing of a program on a machine that others keep busy: what waits for a core would count as hanging.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import psutil

from eqsat_layout.system.workers import WorkerError, Workers

T = TypeVar("T")
R = TypeVar("R")

_BETWEEN: Final = 0.25
"""Seconds between two looks at the processor time."""
_ASLEEP: Final = 30.0
"""How many times its seconds it may take while this process looks: what waits for something for ever uses no processor.
Who stops both for an hour takes nothing from it."""
_DAY: Final = 86_400.0


class LateError(WorkerError):
    """It took too long."""


class Bounded:
    """One process, started when it is needed; ``seconds``: that its processor may take over one argument."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._process = Workers(1, _DAY)

    def call(self, function: Callable[[T], R], argument: T) -> R:
        """What it gives. :class:`LateError` if it takes too long, :class:`WorkerError` if its process ends."""
        pid = self._process.apart(_number, None)
        done, is_late = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=(pid, done, is_late), daemon=True)
        watch.start()
        try:
            return self._process.apart(function, argument)
        except WorkerError as error:
            if is_late.is_set():
                raise LateError(f"it took longer than {self.seconds:g} s") from error
            raise
        finally:
            done.set()
            watch.join()
            if is_late.is_set():  # also if the answer had come just then
                self._process = Workers(1, _DAY)

    def _watch(self, pid: int, done: threading.Event, is_late: threading.Event) -> None:
        """Ends the process when its time is over."""
        begun, looks = _used(pid), 0
        while not done.wait(_BETWEEN):
            looks += 1
            if looks * _BETWEEN > self.seconds * _ASLEEP or _used(pid) - begun > self.seconds:
                is_late.set()
                for process in reversed(_family(pid)):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                return


def _number(_: None) -> int:
    return os.getpid()


def _used(pid: int) -> float:
    """Seconds of processor time of a process and those that it has started; none if it has ended."""
    total = 0.0
    for process in _family(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _family(pid: int) -> list[psutil.Process]:
    """A process and those that it has started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
