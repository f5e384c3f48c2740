"""Child processes that do not get SIGINT: who started them ends them.

A terminal sends it to all processes of a command, and each would print a traceback beside the one line of the command.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Processes started in this context do not get SIGINT; end them when this process ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited, where a handler would not be
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_without_sigint(process: BaseProcess) -> None:
    """Starts a process of ``multiprocessing`` that does not get SIGINT."""
    resource_tracker.ensure_running()  # which ``start`` would do, and then lets SIGINT through
    with sigint_blocked():
        process.start()
