"""Rules that write down what they do: they do the same as without, and what they write is what happened."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from programs import constant, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.limits import Budget, Limits, Stop
from eqsat_layout.egraph.recording import WHY, recorded
from eqsat_layout.egraph.rules import Command, read_all, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.collect import make_offers
from eqsat_layout.targets.registry import target

EVERY_FORM = """
(sort Mark)
(constructor MarkOf (Tensor) Mark)
(datatype Note (Plain String) (Both Note Note :cost 3))
(relation noted (Tensor Note))
(relation beside (Tensor Tensor))
(function depth (Tensor) i64 :merge (max old new))
(set (depth (Param "nobody")) 7)
(union (Param "nobody") (Param "somebody"))
(rule ((live y)) ((set (depth y) 0)) :ruleset logical)
(rule ((alias y k x) (= d (depth x)) (< d 20)) ((set (depth y) (+ d 1))) :ruleset logical :name "deeper")
(rule ((= y (Op _ (Arg x _))) (live y)) ((let n (Both (Plain "a \\"b\\" \\\\ c") (Plain "d"))) (noted y n) (beside x y))
      :ruleset logical)
(rule ((noted y (Both m n)) (= m n)) ((delete (noted y m))) :ruleset logical)
(rule ((beside x y) (= (MarkOf x) m)) ((MarkOf y)) :ruleset flow)
(rewrite (Op k (Arg (Op k (Arg x (End))) (End))) (Op k (Arg x (End))) :when ((is k "relax.nn.relu"))
         :ruleset logical :subsume)
(birewrite (Op k (Arg x (Arg y (End)))) (Op k (Arg y (Arg x (End)))) :when ((is k "relax.maximum")) :ruleset logical)
"""


def mixed(builder: Any, x: Any) -> Any:
    """Views, pads, crops, constants, several results, and ops that rules know."""
    y = builder.emit(op.permute_dims(builder.emit(op.nn.relu(builder.emit(op.nn.relu(x)))), [0, 2, 3, 1]))
    y = builder.emit(op.permute_dims(builder.emit(op.add(y, constant(1, 1, 1, 8))), [0, 3, 1, 2]))
    parts = builder.emit(op.split(builder.emit(op.nn.conv2d(y, constant(32, 8, 3, 3), padding=1)), 2, axis=1))
    z = builder.emit(op.maximum(builder.emit(parts[0]), builder.emit(parts[1])))
    padded = builder.emit(op.nn.pad(z, [0, 0, 0, 0, 1, 1, 0, 0]))
    return builder.emit(op.strided_slice(builder.emit(op.nn.relu(padded)), [2], [1], [9]))


def commands_of(*more: Path) -> list[Command]:
    return read_all(rule_files(more))


def saturated(commands: list[Command], limits: Limits | None = None, body: Any = mixed) -> Saturated:
    imported = import_module(program(body, (1, 8, 8, 8)))
    (graph,) = imported.graphs
    offers = make_offers(imported, target(), None, spoken_for=())
    return saturate(graph, imported.signatures, commands, offers=offers, limits=limits)


def sizes(tables: Any, names: Iterable[str]) -> dict[str, int]:
    return {name: tables.size(name) for name in names}


@pytest.mark.parametrize("text", ["", EVERY_FORM])
@pytest.mark.parametrize("limits", [None, Limits(steps=5)])
def test_rules_that_are_recorded_make_the_same_e_graph(tmp_path: Path, text: str, limits: Limits | None) -> None:
    mine = tmp_path / "mine.egg"
    mine.write_text(text)
    own = saturated(commands_of(mine), limits)
    assert bool(own.stops) == (limits is not None)
    recording = recorded(own.commands)
    engine = Engine(recording.commands)
    engine.repeat(own.history)
    again = engine.tables()
    names = [name for name in own.tables.names if not name.startswith("@")]
    assert sizes(again, names) == sizes(own.tables, names)
    for name in ("impls", "back", "fwd", "view", "is"):  # of names only, which are the same in both
        rows = [sorted(str(row[:3]) for row in tables.rows(name)) for tables in (own.tables, again)]
        assert rows[0] == rows[1]
    for name in ("want", "run", "Op", "same"):
        assert again.size(f"{WHY}{name}") == own.tables.size(name)  # each row has its first firing


def test_what_rules_write_down_has_limits_too() -> None:
    """Rules that were stopped after a minute were repeated for five more, to tell what came of them."""
    own = saturated(commands_of(), body=lambda builder, x: builder.emit(op.nn.relu(x)))
    assert own.derived(lambda derivations: 1) == 1
    own.budget = Budget(Limits(megabytes=1), 0, is_guarded=True)
    assert own.derived(lambda derivations: len(mmap.mmap(-1, 1 << 28))) == Stop("reasons", "1 megabytes of memory")


def test_what_rules_write_down_has_limits_where_no_copy_can_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several threads of egglog's nothing is tried in a copy, and nothing was looked at while it was done."""
    own = saturated(commands_of(), body=lambda builder, x: builder.emit(op.nn.relu(x)))
    monkeypatch.setenv("RAYON_NUM_THREADS", "2")
    own.budget = Budget(Limits(seconds=60), 0, is_guarded=True)
    assert own.derived(lambda derivations: 1) == 1
    own.budget = Budget(Limits(seconds=1e-6), 0, is_guarded=True)
    assert own.derived(lambda derivations: 1) == Stop("reasons", "1e-06 seconds")


def test_the_rules_at_work_are_told_apart_although_their_texts_begin_alike(tmp_path: Path) -> None:
    """Rules without names were known by the first forty characters of their text."""
    begin = '(rule ((n i) (= y (Op k a)) (is k "relax.nn.relu")'
    mine = tmp_path / "mine.egg"
    mine.write_text(
        f"(relation n (i64))\n(rule ((= y (Op k a))) ((n 0)) :ruleset logical)\n"
        f"{begin} (< i 0)) ((n (+ i 1))) :ruleset logical)\n{begin}) ((n (+ i 1))) :ruleset logical)\n"
    )
    notes = eqsat_layout.plan(program(mixed, (1, 8, 8, 8)), rules=[mine], limits=Limits(steps=100)).notes
    assert any("still at work: the rule of mine.egg:4; " in note for note in notes), notes
    assert not any("still at work" in note and "mine.egg:3" in note for note in notes)


def test_both_rules_of_a_birewrite_have_a_name(tmp_path: Path) -> None:
    mine = tmp_path / "mine.egg"
    mine.write_text(
        "(relation n (i64))\n(rule ((= y (Op k a))) ((n 0)) :ruleset logical)\n"
        "(constructor Up (Tensor) Tensor)\n(constructor Down (Tensor) Tensor)\n"
        "(rule ((n i) (= y (Op k a))) ((Up y)) :ruleset logical)\n"
        '(birewrite (Up (Down x)) (Down (Up (Up x))) :ruleset logical :name "swap")\n'
        "(rewrite (Up x) (Up (Down x)) :ruleset logical)\n"
    )
    notes = eqsat_layout.plan(program(mixed, (1, 8, 8, 8)), rules=[mine], limits=Limits(steps=30)).notes
    assert any("still at work" in note and "mine.egg" in note for note in notes), notes
