"""Which states of a frontier sweep may be dropped, because a cheaper one can stand in for them.

In: the states after a step, sorted by cost. Out: fewer, among them the beginning of an optimum if there was one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqsat_layout.extract.solver.order import Live, differences
from eqsat_layout.extract.solver.states import State

COMPARED = 16
"""How many cheaper states each state is compared with. More drops more states and takes longer; any number is sound."""
REMEMBERED = 4_000
"""States whose repair costs are kept for steps that look alike."""
FEW, AT_ONCE = 8, 64
"""From this many states on they are compared with NumPy, if no other step asks the same, and in any case."""
SQUARE = 128
"""Up to this many states each is compared with every other at once."""
TENSORS = 6
"""States that differ in more tensors than this seldom differ in one only."""
NOISE = 1e-14
"""Costs that differ by less than this, relative, count as equal: rounding, far below the 1e-9 of a proof."""


def prune(states: list[State], live: Live) -> list[State]:
    """The states (given by cost), without those that a cheaper one can stand in for (see `ReducedClass.repair`).

    If cost(a) + repair(a, b) <= cost(b), the best completion of b is no better than one of a, so b is dropped; a is
    kept, so an optimum always is. Each state is compared with the first that were kept, so once these are known the
    rest is compared all at once. Of many, those that differ in one tensor only are compared with each other, too.
    """
    kept = _prune(states, live)
    return kept if len(kept) < SQUARE else _prune_by_tensor(kept, live)


def _prune_by_tensor(states: list[State], live: Live) -> list[State]:
    """Without states that a cheaper one which differs in the demand on one tensor can stand in for."""
    mask = (1 << live.width) - 1
    fields = [*live.differing(differences([state[1] for state in states]))]
    for first, reduced_class, final in fields if len(fields) <= TENSORS else ():
        kept: list[State] = []
        alike: dict[int, list[tuple[float, int]]] = {}
        rows: dict[int, dict[int, float]] = {}
        for state in states:
            cost, bits, _ = state
            lacks = bits >> first & mask
            others = alike.setdefault(bits & ~(mask << first), [])
            row = rows.setdefault(lacks, {})
            enough = cost + NOISE * cost
            for place, (before, has) in enumerate(others):
                step = row.get(has)
                if step is None:
                    step = row[has] = reduced_class.repair(has, lacks, final)
                if before + step <= enough:
                    others.insert(0, others.pop(place))  # what beats one often beats the next
                    break
            else:
                others.append((cost, lacks))
                kept.append(state)
        states = kept
    return states


def _prune(states: list[State], live: Live) -> list[State]:
    if len(states) < 2:
        return states
    if live.steps == 1 and FEW <= len(states) <= SQUARE:
        return _not_beaten_at_once(states, live)
    known = live.repairs if live.steps > 1 else {}  # what no other step can ask is not worth its memory
    if len(known) > REMEMBERED:
        known.clear()
    kept: list[State] = []
    for i, state in enumerate(states):
        if len(kept) == COMPARED and len(states) - i >= AT_ONCE:
            return kept + _not_beaten(states[i:], kept, live)
        if not _is_beaten(state, kept, live, known):
            kept.append(state)
    return kept


def _is_beaten(state: State, kept: list[State], live: Live, known: dict[int, dict[int, float]]) -> bool:
    cost, lacks, _ = state
    enough = cost + NOISE * cost
    row = known.get(lacks)
    if row is None:
        row = known[lacks] = {}
    for other in kept[:COMPARED]:
        has = other[1]
        step = row.get(has)
        if step is None:
            step = row[has] = live.repair(has, lacks)
        if other[0] + step <= enough:
            return True
    return False


def _not_beaten(states: list[State], kept: list[State], live: Live) -> list[State]:
    """The same for many states and few that they are compared with."""
    kept_too = np.flatnonzero(~_beats(kept, states, live).any(axis=0))
    return [states[i] for i in kept_too]


def _not_beaten_at_once(states: list[State], live: Live) -> list[State]:
    """What `prune` keeps, from a table of which state beats which."""
    beats = _beats(states, states, live)
    stays = np.ones(len(states), dtype=bool)
    kept: list[State] = []
    for i, state in enumerate(states):
        if stays[i]:
            kept.append(state)
            if len(kept) <= COMPARED:
                stays[i + 1 :] &= ~beats[i, i + 1 :]
    return kept


def _beats(cheaper: list[State], states: list[State], live: Live) -> npt.NDArray[np.bool_]:
    """Whether each of ``cheaper`` (rows) can stand in for each of ``states`` (columns)."""
    steps = live.repair_all([state[1] for state in cheaper], [state[1] for state in states])
    reached = np.array([state[0] for state in cheaper])[:, None] + steps
    costs = np.array([state[0] for state in states])
    result: npt.NDArray[np.bool_] = reached <= costs + NOISE * costs
    return result
