"""Processes that Ctrl-C leaves to those who started them.

A terminal sends it to all processes of a command, and each would print a traceback beside the one line of the command.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess


@contextmanager
def undisturbed() -> Iterator[None]:
    """What this thread starts here does not get SIGINT: it must be ended when this process ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited, where a handler would not be
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_undisturbed(process: BaseProcess) -> None:
    """The same for a process of ``multiprocessing``."""
    resource_tracker.ensure_running()  # which ``start`` would do, and then lets SIGINT through
    with undisturbed():
        process.start()
