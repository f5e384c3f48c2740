"""Room: extract. The solver: which formats, which kernels, which conversions, at least cost.

In: a `Problem`. Out: a `Solution` with a lower bound; an optimum with its proof wherever the frontier stays narrow.
Method: reduce; frontier dynamic program; where too wide or too late, the best states and a relaxation; small rest: ILP.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from eqsat_layout.extract.greedy import greedy_choices
from eqsat_layout.extract.ilp import improve
from eqsat_layout.extract.order import plan
from eqsat_layout.extract.problem import ExtractionError, Problem, Solution, Stats, cost_of
from eqsat_layout.extract.reduce import Reduced, expand, reduce
from eqsat_layout.extract.sweep import Sweep, beam, weaken
from eqsat_layout.extract.template import Choice

MAX_STATES = 3_000
"""States up to which the dynamic program stays exact."""
NARROWED = 8
"""Beyond, the beam and the relaxation keep one of this many of ``max_states``."""


def solve(problem: Problem, *, time_limit: float | None = None, max_states: int = MAX_STATES) -> Solution:
    """The cheapest selection that makes the goals available.

    ``time_limit`` (seconds, soft: the linear parts are always run) and ``max_states`` bound the effort; beyond them the
    best selection found comes with a true lower bound. Without a time limit the same problem has the same solution,
    whatever the hash seed. Raises ExtractionError if the problem is malformed or a goal can't be made at all.
    """
    start = time.perf_counter()
    limit = math.inf if time_limit is None else time_limit
    reduced = reduce(problem)
    sweep = Sweep.begin(reduced, plan(reduced))
    if sweep.run_exact(max_states, start + limit / 2):
        if not sweep.states:
            raise ExtractionError("the goals can be made one by one, but not together without making a tensor of itself")
        found = _solution(reduced, sweep.choices(), math.inf, "frontier")
    else:
        found = _within_limits(reduced, sweep, start, limit, max_states)
    stats = Stats(
        families=len(problem.families),
        kept_families=len(sweep.plan.steps),
        templates=reduced.templates,
        cyclic_families=reduced.cyclic,
        widest=sweep.widest,
        seconds=time.perf_counter() - start,
        method=found.stats.method,
    )
    return replace(found, stats=stats)


def _within_limits(reduced: Reduced, sweep: Sweep, start: float, limit: float, max_states: int) -> Solution:
    """From where the exact sweep stopped: the best states, a relaxation, the greedy selection, and an ILP if small."""
    few = max(2, max_states // NARROWED)
    bound = reduced.lower_bound()
    found: Solution | None = None
    choices = greedy_choices(reduced)
    if choices is not None:
        found = _solution(reduced, choices, bound, "greedy")
    if found is None or time.perf_counter() < start + limit:
        narrowed = sweep.copy()
        narrowed.run_narrowed(few, start + limit * 0.65, beam)
        if narrowed.states and (found is None or narrowed.cost < found.cost):
            found = _solution(reduced, narrowed.choices(), bound, "beam")
    if time.perf_counter() < start + limit:
        relaxed = sweep.copy()
        relaxed.run_narrowed(few, start + limit * 0.8, weaken)
        if not relaxed.states:
            raise ExtractionError("the goals can be made one by one, but not together without making a tensor of itself")
        bound = max(bound, relaxed.cost * (1 - 1e-12))
    made_bound = min(bound, found.cost) if found else bound
    if found is None or not replace(found, lower_bound=made_bound).proven:
        left = start + limit - time.perf_counter()
        better = improve(reduced, found, left)
        if better is not None:
            if found is None or better.cost < found.cost:
                found = _solution(reduced, better.choices, bound, "ilp")
            bound = max(bound, better.lower_bound)
    if found is None:
        raise ExtractionError("no selection was found within the limits that does not make a tensor of itself")
    return replace(found, lower_bound=min(bound, found.cost))


def _solution(reduced: Reduced, chosen: dict[int, Choice], bound: float, method: str) -> Solution:
    made, source = expand(reduced, chosen)
    cost = cost_of(reduced.problem, made, source)
    return Solution(cost, min(cost, bound), made, source, Stats(method=method))
