"""Fewer states than a frontier sweep has: as an upper bound on the optimum (`beam`) or as a lower one (`weaken`).

In: states sorted by cost, and how many may stay. Out: at most so many, sorted by cost.
"""

from __future__ import annotations

from eqsat_layout.extract.solver.order import Live, differences
from eqsat_layout.extract.solver.states import State, keep_cheaper


def beam(states: list[State], few: int, live: Live) -> list[State]:
    """The cheapest: what is reached from them is a solution, perhaps not the best."""
    return states[:few]


def weaken(states: list[State], few: int, live: Live) -> list[State]:
    """Fewer states that demand less, so that no completion gets dearer: what is reached is a lower bound.

    The cheaper half stays. In the others the demand on one tensor after the other becomes "any one store of it", the
    tensor with most different demands first, until enough of them are equal; at the end only the demands that all share
    are left.
    """
    whole = states[: few // 2]
    rest = {state[1]: state for state in states[few // 2 :]}
    mask = (1 << live.width) - 1
    varied = [
        (len(rest), first, reduced_class.size) for first, reduced_class, _ in live.differing(differences([*rest]))
    ]
    while len(whole) + len(rest) > few and varied:
        # counts only fall, so an old one says at most how many different demands there are now
        most, first, size = max(varied, key=lambda field: (field[0], -field[1]))
        place = varied.index((most, first, size))
        now = len({bits >> first & mask for bits in rest})
        if now < most:
            varied[place] = (now, first, size)
            continue
        del varied[place]
        any_store = 1 << size + first
        weaker: dict[int, State] = {}
        for cost, bits, trail in rest.values():
            if bits >> first & mask:
                bits = bits & ~(mask << first) | any_store
            keep_cheaper(weaker, (cost, bits, trail))
        rest = weaker
    if len(whole) + len(rest) > few:
        common = -1
        for bits in rest:
            common &= bits
        best = min(rest.values())
        rest = {common: (best[0], common, best[2])}
    cheapest_by_demand = {state[1]: state for state in reversed(whole)}
    for state in rest.values():
        keep_cheaper(cheapest_by_demand, state)
    return sorted(cheapest_by_demand.values())
