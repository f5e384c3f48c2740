"""How much memory rules may take that nobody has tried, and how often they may match."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from programs import program
from tvm.relax import op

from eqsat_layout import optimize
from eqsat_layout.egraph import limits
from eqsat_layout.egraph.limits import Budget, Limits, rehearsed
from eqsat_layout.errors import EqsatError

LARGE = 1e6
"""Megabytes of a large machine."""


def test_rules_of_the_users_may_not_fill_a_large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a large memory was written, for minutes, before a rule that doubles a text was stopped."""
    monkeypatch.setattr(limits, "_free_megabytes", lambda: LARGE)
    small, large = (Budget(Limits(), size, is_guarded=True).megabytes_left for size in (10, 1_000_000))
    assert 1000 < small < 1500
    assert large == pytest.approx(LARGE / 2, rel=0.01)
    assert Budget(Limits(), 10, is_guarded=False).megabytes_left == pytest.approx(LARGE / 2, rel=0.01)
    assert Budget(Limits(megabytes=5000), 10, is_guarded=True).megabytes_left == pytest.approx(5000, rel=0.1)


def test_what_a_copy_finds_need_not_be_found_again() -> None:
    budget = Budget(Limits(seconds=60.0, megabytes=200.0), 0, is_guarded=True)
    done: list[int] = []
    assert rehearsed(lambda: done.append(1), lambda: (done, "x" * 200_000), budget) == (None, ([1], "x" * 200_000))
    assert done == []
    assert rehearsed(lambda: None, lambda: 1 // 0, budget) == (None, None)  # it fails here too, with its error
    hit, found = rehearsed(lambda: mmap.mmap(-1, 1 << 30), lambda: 1, budget)
    assert hit is not None
    assert found is None


def test_a_copy_may_take_no_more_than_is_left() -> None:
    """It was asked what is left after it had begun, when it counts less of what libraries take: 170 to 370 MB more."""
    budget = Budget(Limits(megabytes=20.0), 0, is_guarded=True)
    assert rehearsed(lambda: mmap.mmap(-1, 10 << 20), lambda: 1, budget) == (None, 1)
    assert rehearsed(lambda: mmap.mmap(-1, 60 << 20), lambda: 1, budget) == ("20 megabytes of memory", None)


def test_memory_that_ends_in_an_error_of_ours_is_memory_all_the_same() -> None:
    """A scratch file that could not be opened was an error of the rules': they were then run without a limit."""

    def write() -> None:
        try:
            mmap.mmap(-1, 60 << 20)
        except OSError as error:
            raise EqsatError("can't write a scratch file") from error

    budget = Budget(Limits(megabytes=20.0), 0, is_guarded=True)
    assert rehearsed(write, lambda: 1, budget) == ("20 megabytes of memory", None)


@pytest.mark.parametrize("ruleset", ["logical", "settle"])
def test_facts_that_have_nothing_to_do_with_one_another_are_stopped_by_their_matches(
    tmp_path: Path, ruleset: str
) -> None:
    """Millions of matches gave few new nodes: it took a minute and 1.2 GB until that was stopped."""
    mine = tmp_path / "mine.egg"
    mine.write_text(
        f"(rule ((= y (Op k (Arg x (End))))) ((union y (Op k (Arg y (End))))) :ruleset {ruleset})\n"
        "(rule ((= y (Op k (Arg x (End)))) (= z (Op j (Arg w (End))))) ((Op k (Arg z (End))))"
        f' :ruleset {ruleset} :name "all on all")\n'
    )
    module = program(lambda b, x: b.emit(op.negative(b.emit(op.nn.relu(x)))), (4, 4))
    notes: list[str] = []
    optimize(module, rules=[mine], limits=Limits(matches=2_000), notes=notes)
    assert "limit of 2,000 matches, which a single step would take; still at work: rule 'all on all'" in notes[0]
    assert not any("not known" in note for note in notes)


def test_what_is_still_at_work_is_of_the_phase_that_was_stopped(tmp_path: Path) -> None:
    """Where the first step of a phase was too large, a rule of the phase before was named."""
    mine = tmp_path / "mine.egg"
    facts = " ".join(f"(= v{n} (Op k{n} a{n}))" for n in range(8))
    mine.write_text(f'(rule ({facts}) ((live v0)) :ruleset settle :name "all on all")\n')
    module = program(lambda b, x: b.emit(op.nn.relu(b.emit(op.add(x, b.emit(op.nn.relu(x)))))), (4, 4))
    notes: list[str] = []
    optimize(module, rules=[mine], limits=Limits(matches=2_000), notes=notes)
    (note,) = [line for line in notes if "were stopped" in line]
    assert "phase 'settle'" in note
    assert "still at work" not in note
