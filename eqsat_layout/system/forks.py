"""Forks of a process while other threads of it are at work.

A fork has one thread, and every lock as it was: one that another thread held is held for ever, that of TVM's allocator
among them. So a fork waits for what is short (a run, an import) and is between :func:`enter` and :func:`leave`; what
begins meanwhile waits for the fork.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  these take locks before a fork,
import logging  # noqa: F401  what was registered last does so first, and ours must not wait for who waits for those
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PATIENCE: Final = 10.0
"""Seconds: who is waited for may itself wait for the thread that forks."""
_POLL: Final = 0.0005

_inside: Final[dict[int, int]] = {}
"""By token, the thread."""


class _Fork:
    """Of one thread at a time: others wait for ``turn``."""

    def __init__(self) -> None:
        self.forking: list[int] = []
        """The thread, as often as it is about to fork: what handles a signal meanwhile may fork, too."""
        self.turn = threading.RLock()

    def is_near(self) -> bool:
        """For other threads. The one that forks, what handles its signals and what others registered for forks go on:
        they would wait for themselves."""
        forking = list(self.forking)
        return bool(forking) and threading.get_ident() not in forking


_fork: Final = _Fork()


def enter(token: int) -> None:
    """No fork until ``leave(token)``. No two may have the same token at once, such as the ``id`` of what is used."""
    thread = threading.get_ident()
    _inside[token] = thread  # before it is asked: a fork says that it is near, and then looks who is inside
    while _fork.is_near() and list(_inside.values()).count(thread) == 1:  # not within what the fork waits for
        del _inside[token]
        with _fork.turn:
            pass
        _inside[token] = thread


def leave(token: int) -> None:
    """Where :func:`enter` was left; it may be a fork that was made inside."""
    _inside.pop(token, None)


@contextmanager
def in_one_piece() -> Iterator[None]:
    """:func:`enter` and :func:`leave` for what is not done often."""
    token = id(object_of_its_own := object())
    enter(token)
    try:
        yield
    finally:
        leave(token)
        del object_of_its_own


def _before() -> None:
    _fork.turn.acquire()
    own, end = threading.get_ident(), time.monotonic() + _PATIENCE
    _fork.forking.append(own)
    while any(thread != own for thread in list(_inside.values())) and time.monotonic() < end:
        time.sleep(_POLL)


def _after_in_parent() -> None:
    if threading.get_ident() in _fork.forking:  # an interrupt may have ended what comes before
        _fork.forking.pop()
        _fork.turn.release()


def _after_in_child() -> None:
    _fork.forking.clear()
    _fork.turn = threading.RLock()
    own = threading.get_ident()
    for token in [token for token, thread in _inside.items() if thread != own]:
        del _inside[token]


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
