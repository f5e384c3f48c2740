"""Work in a second thread, for what lets go of the interpreter.

In: calls without arguments. Out: for each what waits for its result. TVM lets go of the interpreter in all that it
does, so that Python can go on with what comes next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Open(threading.local):
    """The executor of the calling thread's second thread, while there is one."""

    executor: ThreadPoolExecutor | None = None


_open = _Open()

Start = Callable[[Callable[[], _T]], Callable[[], _T]]
"""Begins work, now or later. Gives what waits for its result, or raises what it has raised; asked again, it gives the
same."""


@contextmanager
def second_thread() -> Iterator[Start[Any]]:
    """Where work is done beside the calling thread, one piece after the other.

    Who asks for a piece that is not begun yet does it: where no core is free, nobody waits for the other thread. With
    one core there is none, nor where the system gives none: at its limit of threads, and when the interpreter ends.
    Within another one it is that: to begin and to end a thread takes as long as to make a PrimFunc.
    """
    if _open.executor is not None:
        yield partial(_begun, _open.executor)
        return
    if len(os.sched_getaffinity(0)) < 2:
        yield cache
        return
    executor = _open.executor = ThreadPoolExecutor(1)
    try:
        yield partial(_begun, executor)
    finally:
        _open.executor = None
        executor.shutdown(cancel_futures=True)


def _begun(executor: ThreadPoolExecutor, work: Callable[[], _T]) -> Callable[[], _T]:
    try:
        future = executor.submit(work)
    except RuntimeError:  # no thread can be made
        return cache(work)
    return cache(partial(_result, future, work))


def _result(begun: Future[_T], work: Callable[[], _T]) -> _T:
    return work() if begun.cancel() else begun.result()
