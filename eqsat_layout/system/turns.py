"""Threads take turns: TVM keeps what it is building in global variables, where two threads spoil each other's work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Turn:
    """A lock of the process; a fork starts with one that nobody holds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._renewed)

    def _renewed(self) -> None:
        self.lock = threading.RLock()


_TURN = _Turn()


def one_at_a_time(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, but a thread that calls it while another is in one such waits; a thread may nest them."""

    @wraps(function)
    def in_turn(*args: P.args, **kwargs: P.kwargs) -> R:
        with _TURN.lock:
            return function(*args, **kwargs)

    return in_turn
