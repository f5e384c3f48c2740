"""From choices for the reduced alias classes back to the whole problem.

In: a `Reduced` and what is made of its alias classes. Out: a checked `Solution`, with the free stores that were left
out.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_layout.extract.solver.options import MadeStores
from eqsat_layout.extract.solver.problem import ExtractionError, Solution, SolverStats, StoreId, cost_of
from eqsat_layout.extract.solver.reduce import Reduced


def solution(reduced: Reduced, chosen: Mapping[int, MadeStores], bound: float, stats: SolverStats) -> Solution:
    """The solution that the choices lead to; ``bound`` is what no solution's cost is below (inf: this one is best)."""
    made, source = expand(reduced, chosen)
    cost = cost_of(reduced.problem, made, source)
    return Solution(cost, min(cost, bound), made, source, stats)


def expand(reduced: Reduced, chosen: Mapping[int, MadeStores]) -> tuple[dict[StoreId, int], dict[StoreId, int]]:
    """``made`` and ``source`` of the whole problem from the choices for reduced alias classes, with free stores.

    ``chosen[f]``: the stores made of f, each with its node. Choices that turn out not to be needed are left out.
    """
    problem = reduced.problem
    made: dict[StoreId, int] = {}
    source: dict[StoreId, int] = {}
    work = list(dict.fromkeys(problem.goals))
    while work:
        store = work.pop()
        if store in source:
            continue
        f, s = store
        alias_class = problem.classes[f]
        own = dict(chosen.get(f, ()))
        m = min(own, key=lambda m: (alias_class.convert[m][s], m), default=-1)
        if m < 0 or (alias_class.convert[m][s] > 0 and reduced.free[f] >> s & 1):
            m, index = _free_maker(reduced, f, s)
            index = own.get(m, index)
        else:
            index = own[m]
        source[store] = m
        if (f, m) not in made:
            made[f, m] = index
            work.extend(alias_class.nodes[m][index].children)
    return made, source


def _free_maker(reduced: Reduced, f: int, s: int) -> tuple[int, int]:
    alias_class, reduced_class = reduced.problem.classes[f], reduced.of_class[f]
    for m, ways in enumerate(reduced_class.ways):
        if ways and ways[0].cost == 0 and not ways[0].bits and alias_class.convert[m][s] == 0:
            return m, ways[0].index
    raise ExtractionError(f"no free supplier of store {(f, s)}")
