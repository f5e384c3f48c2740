"""An e-graph of egglog's, which only the thread that made it may free.

In: where its files lie. Out: :class:`OwnedEGraph`. Python's collector may find it in any thread; there it is set aside,
and freed when its own thread makes the next one.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from egglog.bindings import EGraph

_set_aside: defaultdict[int, list[Any]] = defaultdict(list)
"""By thread."""


class OwnedEGraph:
    """Who keeps ``graph``, or a method of it, keeps this too."""

    def __init__(self, folder: str) -> None:
        self._thread = threading.get_ident()
        _set_aside.pop(self._thread, None)
        self.graph: Any = EGraph(fact_directory=folder)

    def __del__(self) -> None:
        graph = getattr(self, "graph", None)
        if graph is not None and threading.get_ident() != self._thread:
            _set_aside[self._thread].append(graph)
