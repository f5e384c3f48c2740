"""E-graphs and threads: egglog's may be freed only where they were made, and the collector runs anywhere."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from eqsat_layout.egraph.engine import Engine


def test_a_graph_that_another_threads_collector_finds_is_not_freed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once said "EGraph is unsendable, but is being dropped on another thread", on the standard error."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    def work() -> None:
        engine = Engine([])
        kept: list[Any] = [engine, engine.tables()]
        kept.append(kept)
        engine.close()

    gc.disable()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        gc.enable()
    gc.collect()
    assert not said
