"""Processes that make kernels beside this one.

In: a function of a module and its arguments, many of them. Out: the results in order. This process works too; a process
that dies takes down only the argument that it was at.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import psutil  # noqa: F401  # TVM imports it in the thread that ends a process, where two at once meet half of it
from tvm.support.popen_pool import PopenWorker

from eqsat_layout.errors import EqsatError

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE: Final = 300.0
"""Seconds after which a kernel counts as one that is never done."""


class WorkerError(EqsatError):
    """A process died, or took too long, over one argument; its cause is the one or the other."""


class _Process(PopenWorker):  # type: ignore[misc]
    """``is_starting``: it was given something to import, and its answer is not read yet."""

    def __init__(self) -> None:
        super().__init__(initializer=setattr, initargs=(sys, "path", list(sys.path)))
        self.is_starting = False
        self._parent = os.getpid()

    def kill(self) -> None:
        """Ends it, but not from a fork of the process that it belongs to."""
        if os.getpid() == self._parent:
            super().kill()

    def join(self, timeout: float | None = None) -> None:
        """Waits for a killed process however busy the machine is: a second, as TVM gives it, leaves a zombie there."""
        super().join()


class Workers:
    """``count`` processes, started when they are needed first. ``patience``: seconds that one may take."""

    def __init__(self, count: int, patience: float = _PATIENCE):
        self._patience = patience
        self._idle: deque[_Process] = deque(_Process() for _ in range(count))
        self._lock = threading.Lock()

    def start(self, function: Callable[[], object]) -> None:
        """Lets the processes start and import what ``function`` needs, without waiting for them."""
        for worker in (own := self._taken()):
            if not worker.is_alive():
                worker.send(function)
                worker.is_starting = True
        self._give_back(own)

    def map(self, function: Callable[[T], R], arguments: Sequence[T]) -> list[R | Exception]:
        """What ``function`` gives, or raises, for each argument, the first ones first."""
        results: list[Any] = [None] * len(arguments)
        waiting = deque(enumerate(arguments))
        threads = [
            threading.Thread(target=self._serve, args=(worker, function, waiting, results), daemon=True)
            for worker in self._taken(len(arguments) - 1)
        ]
        for thread in threads:
            thread.start()
        while (job := _next(waiting)) is not None:
            number, argument = job
            try:
                results[number] = function(argument)
            except Exception as error:  # the caller looks at each: one kernel must not end the others
                results[number] = error
        for thread in threads:
            thread.join()
        return results

    def apart(self, function: Callable[[T], R], argument: T) -> R:
        """What ``function`` gives in another process. :class:`WorkerError` if that dies."""
        results: list[Any] = [None]
        (worker,) = self._taken(1) or [_Process()]
        self._serve(worker, function, deque([(0, argument)]), results)
        if isinstance(results[0], Exception):
            raise results[0]
        result: R = results[0]
        return result

    def _serve(
        self,
        worker: _Process,
        function: Callable[[T], R],
        waiting: deque[tuple[int, T]],
        results: list[Any],
    ) -> None:
        while (job := _next(waiting)) is not None:
            number, argument = job
            try:
                if worker.is_starting:
                    worker.is_starting = False
                    worker.recv()
                worker.send(function, (argument,), timeout=self._patience)
                results[number] = worker.recv()
            except (ChildProcessError, TimeoutError) as error:
                results[number] = WorkerError(f"the process that made it ended: {error}")
                results[number].__cause__ = error
            except Exception as error:  # as above
                results[number] = error
        self._give_back([worker])

    def _taken(self, most: int | None = None) -> list[_Process]:
        """Processes that nobody else uses now."""
        with self._lock:
            count = len(self._idle) if most is None else max(0, min(most, len(self._idle)))
            return [self._idle.popleft() for _ in range(count)]

    def _give_back(self, processes: Iterable[_Process]) -> None:
        with self._lock:
            self._idle.extend(processes)


@cache
def workers() -> Workers:
    """Those of this process: one less than it has cores, since it works itself."""
    return Workers(len(os.sched_getaffinity(0)) - 1)


os.register_at_fork(after_in_child=workers.cache_clear)


def _next(waiting: deque[tuple[int, T]]) -> tuple[int, T] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None
