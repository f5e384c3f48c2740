"""E-graphs and threads: egglog's may be freed only where they were made, and the collector runs anywhere."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.rules import read_all, rule_files
from eqsat_layout.errors import RuleError


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


class Meanwhile:
    """Something else that is found as garbage: ``does`` is called while it is."""

    def __init__(self, does: Callable[[], object]) -> None:
        self.does = does

    def __del__(self) -> None:
        self.does()


@pytest.mark.parametrize("also_kept", ["nothing", "a method"])
def test_a_graph_that_its_thread_gives_up_while_another_one_collects_it(
    also_kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread dropped what was set aside, and the collector of the other one, which had still to clear the engine,
    freed it: one run of all tests in three said that an EGraph is dropped on another thread."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    found: SimpleQueue[None] = SimpleQueue()
    goes_on: SimpleQueue[None] = SimpleQueue()

    def wait() -> None:
        found.put(None)
        goes_on.get(timeout=60)

    gc.disable()
    try:
        engine = Engine([])
        kept: list[Any] = [Meanwhile(wait), engine, engine.tables(), Meanwhile(wait)]  # one comes behind the engine
        kept += [kept, engine._egraph.parse_program if also_kept == "a method" else None]
        del engine, kept
        thread = threading.Thread(target=gc.collect)
        thread.start()
        for _ in range(2):
            found.get(timeout=60)
            Engine([])  # what was set aside is given up
            goes_on.put(None)
        thread.join()
    finally:
        gc.enable()
    Engine([])
    assert not said


def test_an_e_graph_that_is_alive_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was killed while it planned left a folder of facts behind: 83 lay on one machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rules = tmp_path / "seen.egg"
    rules.write_text("(relation seen (i64))")
    engine = Engine(read_all([rules]))
    engine.load({"seen": [(number,) for number in range(3)]})
    assert sorted(engine.tables().rows("seen")) == [(0,), (1,), (2,)]
    assert [path.name for path in tmp_path.iterdir()] == ["seen.egg"]


def test_facts_that_are_fewer_than_those_before_are_all_there_is(tmp_path: Path) -> None:
    """One file takes all of them in turn, and is cut after it is written."""
    rules = tmp_path / "seen.egg"
    rules.write_text("(relation many (i64))\n(relation few (i64))")
    engine = Engine(read_all([rules]))
    engine.load({"many": [(number,) for number in range(100)], "few": [(7,)]})
    assert engine.tables().size("many") == 100
    assert engine.tables().rows("few") == [(7,)]


SHIPPED = read_all(rule_files())


def test_the_packages_rules_are_declared_once(tmp_path: Path) -> None:
    """Each plan declared them anew: a fifth of its time where it is small."""
    rules = tmp_path / "own.egg"
    rules.write_text("(relation seen (i64)) (ruleset mine) (rule ((seen x)) ((seen (+ x 1))) :ruleset mine)")
    own, rows = read_all([rules]), {"seen": [(0,)]}
    first = Engine([*SHIPPED, *own])
    first.load(rows)
    first.step("mine")
    graph = first._egraph
    assert first.size() == 2
    del first
    second = Engine(SHIPPED)
    assert second._egraph is graph
    assert second.size() == 0
    for command in own:  # nothing of the user's is left
        second.declare(command)
    second.load(rows)
    assert sorted(second.tables().rows("seen")) == [(0,)]


def test_two_e_graphs_at_once_are_two() -> None:
    first, second = Engine(SHIPPED), Engine(SHIPPED)
    assert first._egraph is not second._egraph


def test_an_e_graph_in_which_egglog_stopped_is_not_used_again(tmp_path: Path) -> None:
    rules = tmp_path / "wrong.egg"
    rules.write_text("(relation seen (Nowhere))")
    (command,) = read_all([rules])
    engine = Engine(SHIPPED)
    graph = engine._egraph
    with pytest.raises(RuleError, match="Nowhere"):
        engine.declare(command)
    del engine
    assert Engine(SHIPPED)._egraph is not graph
