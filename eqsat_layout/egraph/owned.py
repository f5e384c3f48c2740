"""An e-graph of egglog's, which only the thread that made it may free.

In: where its files lie. Out: :class:`OwnedEGraph`. Python's collector may find it in any thread; there it is set aside,
and freed when its own thread makes the next one. What belongs to a thread that has ended can't be freed any more.
Nor can what a fork got of its parent: egglog frees it with threads that are in the parent only, and waits for them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Final

from eqsat_layout.egraph.bindings import extension


class _Own(threading.local):
    """A thread's. Numbers of threads are given again, this object is not."""

    def __init__(self) -> None:
        self.set_aside: list[Any] = []


_own = _Own()
_kept: list[list[Any]] = []
"""Those of threads that have ended are among them: nothing of theirs is ever freed."""


def _never_free(graphs: Iterable[Any]) -> None:
    for graph in graphs:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph))


@atexit.register
def _leave() -> None:
    """The thread that ends the interpreter does not free them either."""
    for graphs in _kept:
        _never_free(graphs)


class OwnedEGraph:
    """Who keeps ``graph``, or a method of it, keeps this too."""

    def __init__(self, folder: str) -> None:
        self._set_aside = _own.set_aside
        self._set_aside.clear()
        self.graph: Any = extension().EGraph(fact_directory=folder)
        _owners.add(self)

    def __del__(self) -> None:
        graph = getattr(self, "graph", None)
        if graph is not None and self._set_aside is not _own.set_aside:
            self._set_aside.append(graph)
            if not any(one is self._set_aside for one in _kept):
                _kept.append(self._set_aside)


_owners: Final[weakref.WeakSet[OwnedEGraph]] = weakref.WeakSet()


def _in_a_fork() -> None:
    _never_free([owner.graph for owner in _owners])
    _leave()


os.register_at_fork(after_in_child=_in_a_fork)
