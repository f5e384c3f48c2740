"""Bounds on what is to come: they hold for every state, and no optimum is lost where they end the search sooner."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import pytest
from extract.solver.small_problems import brute_force, problems, seeded_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_layout.extract.solver import frontier
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.narrowing import beam, weaken
from eqsat_layout.extract.solver.order import elimination_order
from eqsat_layout.extract.solver.problem import ExtractionError, Problem, cost_of
from eqsat_layout.extract.solver.reduce import reduce
from eqsat_layout.extract.solver.remaining import Remaining
from eqsat_layout.extract.solver.states import State
from eqsat_layout.extract.solver.sweep import Sweep

TINY = 1e-9


@settings(max_examples=20)
@given(problems(cyclic=True), st.integers(1, 4))
def test_no_state_is_completed_for_less_than_its_bound(problem: Problem, few: int) -> None:
    reduced = reduce(problem) if brute_force(problem) < math.inf else None
    if reduced is None or not reduced.goals:
        return
    start = Sweep.begin(reduced, elimination_order(reduced))
    known: dict[int, list[int]] = {}
    start.copy().run_narrowed(few, math.inf, weaken, known)
    remaining = Remaining(start.order, known, lambda step, bits: start.after(step, bits, 1_000))
    wide = start.copy()
    for step in range(1, len(start.order.steps)):
        states = wide._expand(start.order.steps[step - 1], 1_000)
        assert states is not None
        wide._advance(states)
        for state, bound in zip(states, remaining.of(step, states), strict=True):
            assert bound <= cost_from(start, step, state) + TINY


def test_bounds_that_there_is_no_time_for_are_zero() -> None:
    reduced = reduce(seeded_problem(2, 14, cyclic=False, forks=3))
    start = Sweep.begin(reduced, elimination_order(reduced))
    known: dict[int, list[int]] = {}
    start.copy().run_narrowed(2, math.inf, weaken, known)
    turns = iter([False, False] + [True] * len(known))
    remaining = Remaining(start.order, known, lambda step, bits: start.after(step, bits, 1_000), lambda: next(turns))
    assert any(least.any() for least in remaining.least.values())
    assert not remaining.least[min(known) + 1].any()


def cost_from(start: Sweep, step: int, state: State) -> float:
    """What completing a state costs."""
    alone = replace(start, states=[(0.0, state[1], None)], step=step, known={}, compared=[0])
    assert alone.run_exact(1_000, math.inf)
    return alone.cost


@pytest.mark.parametrize("cyclic", [False, True])
def test_the_optimum_is_among_what_may_end_below_the_limit(cyclic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    wide, truths = [], []
    for seed in range(60):
        with suppress(ExtractionError):  # a goal that nothing makes
            problem = seeded_problem(seed, 14, cyclic=cyclic, forks=3)
            truths.append(solve(problem))
            wide.append(problem)
    for name, value in (("FIRST", 1), ("NARROW", (1, 2)), ("LIMITING", 2), ("WIDER", 3)):
        monkeypatch.setattr(frontier, name, value)
    limited: list[Sweep] = []
    limit = frontier._Narrow.limit
    monkeypatch.setattr(frontier._Narrow, "limit", lambda self, sweep: (limit(self, sweep), limited.append(sweep)))
    for problem, truth in zip(wide, truths, strict=True):
        found = solve(problem)
        assert found.proven
        assert found.cost == pytest.approx(truth.cost, rel=TINY)
        assert cost_of(problem, found.made, found.source) == pytest.approx(found.cost, rel=TINY)
    assert sum(sweep.limit < math.inf for sweep in limited) >= 5


def test_a_limited_sweep_follows_fewer_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """MixNet for an Adreno: 4 s, where a sweep without limit took 213 s of processor time to prove the same plan."""
    monkeypatch.setattr("eqsat_layout.extract.solver.blocks.MANY", 1_000_000)
    monkeypatch.setattr("eqsat_layout.extract.solver.dominance.TENSORS", 0)
    monkeypatch.setattr(frontier, "FIRST", 20)
    monkeypatch.setattr(frontier, "WIDER", 33)  # which proves nothing
    problem = seeded_problem(2, 120, cyclic=False, forks=3)
    problem = replace(problem, goals=tuple((f, 0) for f in range(0, 120, 5)))
    limited = solve(problem)
    monkeypatch.setattr(frontier._Narrow, "limit", lambda self, sweep: None)
    wide = solve(problem)
    assert limited.proven
    assert wide.proven
    assert limited.cost == pytest.approx(wide.cost, rel=TINY)
    assert limited.stats.widest < wide.stats.widest


def test_a_beam_leaves_out_only_what_it_would_not_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = seeded_problem(2, 120, cyclic=False, forks=3)
    reduced = reduce(replace(problem, goals=tuple((f, 0) for f in range(0, 120, 5))))
    costs = []
    for tried in (3, 1_000_000):
        monkeypatch.setattr("eqsat_layout.extract.solver.sweep.TRIED", tried)
        sweep = Sweep.begin(reduced, elimination_order(reduced))
        sweep.run_narrowed(4, math.inf, beam)
        costs.append((sweep.cost, sweep.compared[0]))
    assert costs[0][0] == pytest.approx(costs[1][0])
    assert costs[0][1] < costs[1][1]
