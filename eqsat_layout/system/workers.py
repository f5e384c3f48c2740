"""Processes that make kernels beside this one.

In: a function of a module and its arguments, many of them. Out: the results in order. This process works too; a process
that dies takes down only the argument that it was at.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import psutil  # noqa: F401  # TVM imports it in the thread that ends a process, where two at once meet half of it
from tvm.support.popen_pool import PopenWorker

from eqsat_layout.errors import EqsatError
from eqsat_layout.system.sigint import sigint_blocked
from eqsat_layout.system.worker_process import command

T = TypeVar("T")
R = TypeVar("R")

_LOG: Final = logging.getLogger(__name__)

_PATIENCE: Final = 300.0
"""Seconds after which a kernel counts as one that is never done."""


class WorkerError(EqsatError):
    """A process died, or took too long, over one argument; its cause is the one or the other."""


class _Process(PopenWorker):  # type: ignore[misc]
    """One that may be given something before it has read what came before. Its temporary files lie in a folder of its
    own, since who is killed leaves them there."""

    def __init__(self) -> None:
        super().__init__()
        self._unread = 0  # answers that nobody asks for
        self._scratch = ""
        self._parent = os.getpid()

    def _start(self) -> None:
        """As TVM's, but by a command of our own."""
        try:
            self._scratch = tempfile.mkdtemp(prefix="eqsat_layout_")
        except OSError as error:
            raise WorkerError(f"there is no place for temporary files: {error}") from error
        (answers, answering), (reading, jobs) = os.pipe(), os.pipe()
        ends = (reading, answering)
        with sigint_blocked():  # also since what is half started can't be ended
            self._reader, self._writer = os.fdopen(answers, "rb"), os.fdopen(jobs, "wb")
            self._proc = subprocess.Popen(command(*ends, self._scratch), pass_fds=ends)
        for end in ends:
            os.close(end)
        self._unread = 0

    def begin(self, function: Callable[..., object], arguments: tuple[Any, ...] = ()) -> None:
        """Sends what nobody waits for."""
        self.send(function, arguments)
        self._unread += 1

    def recv(self) -> Any:
        """The answer to what was sent last."""
        while self._unread:
            self._unread -= 1
            try:
                super().recv()
            except (ChildProcessError, TimeoutError):
                raise
            except Exception as error:  # the answer that is asked for comes after it
                _LOG.warning("a process could not begin as it should: %s", error)
        return super().recv()

    def kill(self) -> None:
        """Ends it, but not from a fork of the process that it belongs to."""
        if os.getpid() == self._parent:
            super().kill()
            if self._scratch:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def join(self, timeout: float | None = None) -> None:
        """Waits for a killed process however busy the machine is: a second, as TVM gives it, leaves a zombie there."""
        super().join()


class Workers:
    """``processes``: how many, started when they are needed first. ``patience``: seconds that one may take."""

    def __init__(self, processes: int, patience: float = _PATIENCE):
        self._patience = patience
        self._idle: deque[_Process] = deque(_Process() for _ in range(processes))
        self._ahead: list[tuple[SimpleQueue[Any], list[threading.Thread]]] = []
        self._lock = threading.Lock()

    def start(self, function: Callable[[], object], further: Callable[[], object] | None = None) -> None:
        """Lets the processes start and import what ``function`` needs, without waiting for them.

        The first of those that start calls ``further`` too, whose result is found elsewhere.
        """
        for worker in (own := self._taken()):
            if not worker.is_alive():
                worker.begin(function)
                if further is not None:
                    worker.begin(further)
                    further = None
        self._give_back(own)

    @contextmanager
    def ahead(
        self, function: Callable[[T], R], done: Callable[[int, R | Exception], object]
    ) -> Iterator[Callable[[T], None]]:
        """Gives what takes arguments: the processes work on them while this one does something else.

        ``done`` is told of each, by its number, in a thread. What is not begun when :meth:`settle` is called is left.
        """
        waiting: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        numbers = count()
        threads = self._threads(self._taken(), function, waiting.get, done)
        self._ahead.append((waiting, threads))
        try:
            yield lambda argument: waiting.put((next(numbers), argument))
        finally:
            for _ in threads:
                waiting.put(None)

    def settle(self) -> None:
        """Waits for what :meth:`ahead` has begun; then its processes are free."""
        while self._ahead:
            waiting, threads = self._ahead.pop()
            with suppress(Empty):
                while True:
                    waiting.get_nowait()
            for _ in threads:
                waiting.put(None)
            for thread in threads:
                thread.join()

    def map(self, function: Callable[[T], R], arguments: Sequence[T]) -> list[R | Exception]:
        """What ``function`` gives, or raises, for each argument, the first ones first."""
        results: list[Any] = [None] * len(arguments)
        waiting = deque(enumerate(arguments))
        taken = self._taken(len(arguments) - 1)
        threads = self._threads(taken, function, lambda: _next(waiting), results.__setitem__)
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
        self._serve(worker, function, deque([(0, argument), None]).popleft, results.__setitem__)
        if isinstance(results[0], Exception):
            raise results[0]
        result: R = results[0]
        return result

    def map_apart(self, function: Callable[[T], R], arguments: Sequence[T]) -> list[R | Exception]:
        """As :meth:`map`, but nothing of it in this process, which stays whatever happens."""
        if not arguments:
            return []
        results: list[Any] = [None] * len(arguments)
        waiting = deque(enumerate(arguments))
        taken = self._taken(len(arguments)) or [_Process()]
        threads = self._threads(taken, function, lambda: _next(waiting), results.__setitem__)
        for thread in threads:
            thread.join()
        return results

    def _threads(
        self,
        taken: Sequence[_Process],
        function: Callable[[T], R],
        following: Callable[[], tuple[int, T] | None],
        done: Callable[[int, R | Exception], object],
    ) -> list[threading.Thread]:
        """One for each process; ``following`` gives what comes next, or ``None``."""
        own = [threading.Thread(target=self._serve, args=(w, function, following, done), daemon=True) for w in taken]
        for thread in own:
            thread.start()
        return own

    def _serve(
        self,
        worker: _Process,
        function: Callable[[T], R],
        following: Callable[[], tuple[int, T] | None],
        done: Callable[[int, R | Exception], object],
    ) -> None:
        try:
            while (job := following()) is not None:
                number, argument = job
                result: R | Exception
                try:
                    worker.send(function, (argument,), timeout=self._patience)
                    result = worker.recv()
                except (ChildProcessError, TimeoutError) as error:
                    is_late = isinstance(error, TimeoutError)
                    fate = f"took longer than {self._patience:g} s" if is_late else f"ended: {error}"
                    result = WorkerError(f"the process that made it {fate}")
                    result.__cause__ = error
                except Exception as error:  # as above
                    result = error
                done(number, result)
        finally:
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
