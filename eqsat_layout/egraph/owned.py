"""An e-graph of egglog's, which only the thread that made it may free.

In: where its files lie, and what is declared in it first. Out: :class:`OwnedEGraph`. Python's collector may find it in
any thread; there it is set aside, and freed when its own thread makes the next one, unless somebody has it still: a
collector that tells what it found has yet to clear it, and a method of an e-graph keeps it too. What belongs to a
thread that has ended can't be freed any more. Nor can what a fork got of its parent: egglog frees it with threads that
are in the parent only, and waits for them. To declare the rules of the package takes a fifth of the time of a small
plan: the main thread takes its e-graphs back to where they were declared, and uses them again; other threads may end
before that.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from eqsat_layout.egraph.bindings import extension


class _Own(threading.local):
    """A thread's. Numbers of threads are given again, this object is not."""

    def __init__(self) -> None:
        self.set_aside: deque[Any] = deque()


_own = _Own()
_kept: list[deque[Any]] = []
"""Those of threads that have ended are among them: nothing of theirs is ever freed."""


def _free(set_aside: deque[Any]) -> None:
    """Those that nobody else has; ``set_aside`` is the calling thread's, and others add to it meanwhile."""
    for _ in range(len(set_aside)):
        graph = set_aside.popleft()
        if sys.getrefcount(graph) > _OF_A_VARIABLE:
            set_aside.append(graph)


def _of_a_variable() -> int:
    one = object()
    return sys.getrefcount(one)


_OF_A_VARIABLE: Final = _of_a_variable()
"""How often what a local variable has, and nobody else, is counted there."""


def _never_free(graphs: Iterable[Any]) -> None:
    for graph in graphs:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph))


_MOST_READY: Final = 4
_ready: Final[deque[tuple[object, Any]]] = deque()
"""E-graphs of the main thread in which nothing was done but to declare something, behind what that is."""


class OwnedEGraph:
    """Who keeps ``graph``, or a method of it, keeps this too. ``is_declared``: what is in ``declared`` is in it.

    ``is_spoiled``: egglog stopped in the middle of something, and it is not to be used again.
    """

    def __init__(self, folder: str, declared: object = None) -> None:
        self._set_aside = _own.set_aside
        _free(self._set_aside)
        self._key, self._is_marked, self.is_spoiled = (folder, declared), False, False
        ready = _taken(self._key) if _is_main_thread() else None
        self.is_declared = ready is not None
        self.graph: Any = extension().EGraph(fact_directory=folder) if ready is None else ready
        _owners.add(self)

    def mark(self) -> None:
        """What is to be declared is: the main thread's e-graph is taken back here when nobody uses it any more."""
        self.is_declared = True
        if _is_main_thread():
            _do(self.graph, "(push)")
            self._is_marked = True

    def __del__(self) -> None:
        graph = self.__dict__.pop("graph", None)
        if graph is None:
            return
        is_own = self._set_aside is _own.set_aside
        if is_own and self._is_marked and not self.is_spoiled:
            _do(graph, "(pop)")
            _ready.append((self._key, graph))
            if len(_ready) <= _MOST_READY:
                return
            _, graph = _ready.popleft()
        self._set_aside.append(graph)
        del graph
        if is_own:
            _free(self._set_aside)
        is_empty = is_own and not self._set_aside
        if not is_empty and not any(one is self._set_aside for one in _kept):
            _kept.append(self._set_aside)

    def forget(self) -> None:
        """It is not taken back: this process is a fork, or ends."""
        self._is_marked = False


def _taken(key: object) -> Any | None:
    """The one that is ready for it, if any. The collector may add some meanwhile."""
    for _ in range(len(_ready)):
        one = _ready.pop()
        if one[0] == key:
            return one[1]
        _ready.appendleft(one)
    return None


def _do(graph: Any, text: str) -> None:
    graph.run_program(*graph.parse_program(text))


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
    _never_free([graph for owner in _owners if (graph := vars(owner).get("graph")) is not None])
    _leave()


os.register_at_fork(after_in_child=_in_a_fork)
