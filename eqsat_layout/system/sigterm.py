"""SIGTERM as an exception, so that a command that ``timeout`` or a scheduler stops still says what it found.

By default the process ends at once, and nothing on the stack has its ``finally``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_exits() -> Iterator[None]:
    """In this context, which is one of the main thread, SIGTERM raises :class:`SystemExit` with a shell's exit code;
    once, as ``timeout`` sends it to the process and to its group, and the second is not to disturb what the first
    does."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
