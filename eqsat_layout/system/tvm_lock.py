"""One lock for all that builds with TVM, which keeps what it is building in global variables."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _ForkSafeLock:
    """A lock of the process; a fork starts with one that nobody holds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renewed)

    def _renewed(self) -> None:
        self.lock = threading.RLock()


_LOCK = _ForkSafeLock()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, but only one thread at a time is in any of these; a thread may nest them."""

    @wraps(function)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> R:
        with _LOCK.lock:
            return function(*args, **kwargs)

    return in_turn
