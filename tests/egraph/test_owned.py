"""E-graphs and threads: egglog's may be freed only where they were made, and the collector runs anywhere."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.rules import read_commands


def test_a_graph_that_another_threads_collector_finds_is_not_freed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once said "EGraph is unsendable, but is being dropped on another thread", on the standard error."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)

    def work() -> None:
        engine = Engine([])
        kept: list[Any] = [engine, engine.tables()]
        kept.append(kept)

    gc.disable()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        gc.enable()
    gc.collect()
    assert not said


def test_an_e_graph_that_is_alive_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was killed while it planned left a folder of facts behind: 83 lay on one machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rules = tmp_path / "seen.egg"
    rules.write_text("(relation seen (i64))")
    engine = Engine(read_commands(rules))
    engine.load({"seen": [(number,) for number in range(3)]})
    assert sorted(engine.tables().rows("seen")) == [(0,), (1,), (2,)]
    assert [path.name for path in tmp_path.iterdir()] == ["seen.egg"]
