"""From choices for the reduced families back to the whole problem.

In: a `Reduced` and what is made of its families. Out: a checked `Solution`, with the free stores that were left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_layout.extract.solver.problem import ExtractionError, Solution, Stats, Store, cost_of
from eqsat_layout.extract.solver.reduce import Reduced
from eqsat_layout.extract.solver.template import Choice


def solution(reduced: Reduced, chosen: Mapping[int, Choice], bound: float, stats: Stats) -> Solution:
    """The solution that the choices lead to; ``bound`` is what no solution's cost is below (inf: this one is best)."""
    made, source = expand(reduced, chosen)
    cost = cost_of(reduced.problem, made, source)
    return Solution(cost, min(cost, bound), made, source, stats)


def expand(reduced: Reduced, chosen: Mapping[int, Choice]) -> tuple[dict[Store, int], dict[Store, int]]:
    """``made`` and ``source`` of the whole problem from the choices for the reduced families; free stores are added.

    ``chosen[f]``: the stores made of f, each with its node. Choices that turn out not to be needed are left out.
    """
    problem = reduced.problem
    made: dict[Store, int] = {}
    source: dict[Store, int] = {}
    work = list(dict.fromkeys(problem.goals))
    while work:
        store = work.pop()
        if store in source:
            continue
        f, s = store
        family = problem.families[f]
        own = dict(chosen.get(f, ()))
        m = min(own, key=lambda m: (family.convert[m][s], m), default=-1)
        if m < 0 or (family.convert[m][s] > 0 and reduced.free[f] >> s & 1):
            m, index = _free_maker(reduced, f, s)
            index = own.get(m, index)
        else:
            index = own[m]
        source[store] = m
        if (f, m) not in made:
            made[f, m] = index
            work.extend(family.nodes[m][index].children)
    return made, source


def _free_maker(reduced: Reduced, f: int, s: int) -> tuple[int, int]:
    family, template = reduced.problem.families[f], reduced.template[f]
    for m, ways in enumerate(template.ways):
        if ways and ways[0].cost == 0 and not ways[0].bits and family.convert[m][s] == 0:
            return m, ways[0].index
    raise ExtractionError(f"no free supplier of store {(f, s)}")
