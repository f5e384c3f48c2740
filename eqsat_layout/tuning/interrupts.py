"""Ctrl-C that nothing swallows.

In: nothing. Out: a function that says whether one came. TVM's passes call back into Python, where an interrupt looks
like any other error of a callback.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watched_interrupts() -> Iterator[Callable[[], None]]:
    """A function that raises :class:`KeyboardInterrupt` if one came: inside of a build TVM may take it for a failure.

    Only the main thread is ever interrupted.
    """
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield lambda: None  # there is nothing that could be put back, or nothing to be seen
        return

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if callable(before):
            before(number, frame)

    def check() -> None:
        if came and callable(before):
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
