"""One lock for all that builds with TVM, which keeps what it is building in global variables."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from eqsat_layout.errors import EqsatError
from eqsat_layout.system import interrupts  # noqa: F401  # who builds may be interrupted

P = ParamSpec("P")
R = TypeVar("R")


class _ForkSafeLock:
    """A lock of the process; a fork starts with one that nobody holds. What another thread was building then stays half
    built there: ``is_left_behind``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_left_behind = False
        os.register_at_fork(after_in_child=self._renewed)

    def _renewed(self) -> None:
        self.is_left_behind |= not self.lock.acquire(blocking=False)
        self.lock = threading.RLock()


_LOCK = _ForkSafeLock()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, but only one thread at a time is in any of these; a thread may nest them."""

    @wraps(function)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> R:
        check_not_left_behind()
        with _LOCK.lock:
            return function(*args, **kwargs)

    return in_turn


def check_not_left_behind() -> None:
    """Raises :class:`EqsatError` in a fork that was made while another thread was in one of these: TVM's variables, and
    the locks of what was imported, are as that thread left them."""
    if _LOCK.is_left_behind:
        raise EqsatError(
            "this process is a fork, made while another thread planned or compiled: start the process by spawning it"
            ' (multiprocessing.get_context("spawn")), or fork before'
        )
