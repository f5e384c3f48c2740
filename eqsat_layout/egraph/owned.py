"""An e-graph of egglog's, which only the thread that made it may free.

In: where its files lie, and what is declared in it first. Out: :class:`OwnedEGraph`. Python's collector may find it in
any thread; there it is set aside, and freed when its own thread makes the next one. What belongs to a thread that has
ended can't be freed any more. Nor can what a fork got of its parent: egglog frees it with threads that are in the
parent only, and waits for them. To declare the rules of the package takes a fifth of the time of a small plan: the main
thread takes its e-graphs back to where they were declared, and uses them again; other threads may end before that.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections import deque
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


_MOST_READY: Final = 4
_ready: Final[deque[tuple[object, Any]]] = deque(maxlen=_MOST_READY)
"""E-graphs of the main thread in which nothing was done but to declare something, behind what that is."""


class OwnedEGraph:
    """Who keeps ``graph``, or a method of it, keeps this too. ``is_declared``: what is in ``declared`` is in it.

    ``is_spoiled``: egglog stopped in the middle of something, and it is not to be used again.
    """

    def __init__(self, folder: str, declared: object = None) -> None:
        self._set_aside = _own.set_aside
        self._set_aside.clear()
        self._key, self._is_marked, self.is_spoiled = (folder, declared), False, False
        kept = next((one for one in reversed(_ready) if one[0] == self._key), None) if _is_main_thread() else None
        self.is_declared = kept is not None
        if kept is not None:
            _ready.remove(kept)
        self.graph: Any = extension().EGraph(fact_directory=folder) if kept is None else kept[1]
        _owners.add(self)

    def mark(self) -> None:
        """What is to be declared is: the main thread's e-graph is taken back here when nobody uses it any more."""
        self.is_declared = True
        if _is_main_thread():
            self._do("(push)")
            self._is_marked = True

    def __del__(self) -> None:
        graph = getattr(self, "graph", None)
        if graph is None:
            return
        if self._set_aside is not _own.set_aside:
            self._set_aside.append(graph)
            if not any(one is self._set_aside for one in _kept):
                _kept.append(self._set_aside)
        elif self._is_marked and not self.is_spoiled:
            self._do("(pop)")
            _ready.append((self._key, graph))

    def forget(self) -> None:
        """It is not taken back: this process is a fork, or ends."""
        self._is_marked = False

    def _do(self, text: str) -> None:
        self.graph.run_program(*self.graph.parse_program(text))


_owners: Final[weakref.WeakSet[OwnedEGraph]] = weakref.WeakSet()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@atexit.register
def _leave() -> None:
    """The thread that ends the interpreter does not free them either."""
    for owner in _owners:
        owner.forget()
    for graphs in (*_kept, [graph for _, graph in _ready]):
        _never_free(graphs)
    _ready.clear()


def _in_a_fork() -> None:
    _never_free([owner.graph for owner in _owners])
    _leave()


os.register_at_fork(after_in_child=_in_a_fork)
