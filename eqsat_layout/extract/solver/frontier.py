"""The solver: which formats, which kernels, which conversions, at least cost.

In: a `Problem`. Out: a `Solution` with a lower bound; an optimum with its proof wherever the frontier stays narrow.
Method: reduce; frontier dynamic program; where too wide or too late, the best states and a relaxation; small rest: ILP.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from eqsat_layout.extract.solver.expand import solution
from eqsat_layout.extract.solver.greedy import greedy_choices
from eqsat_layout.extract.solver.ilp import improve
from eqsat_layout.extract.solver.order import elimination_order
from eqsat_layout.extract.solver.problem import ExtractionError, Problem, Solution, SolverStats
from eqsat_layout.extract.solver.reduce import Reduced, reduce
from eqsat_layout.extract.solver.sweep import Sweep, beam, weaken

MAX_STATES = 40_000
"""States up to which the dynamic program stays exact."""
NARROWED = 24
"""Beyond, the beam and the relaxation keep one of this many of ``max_states``."""
NOT_TOGETHER = "the goals can be made one by one, but not together without making a tensor out of itself"


def solve(problem: Problem, *, time_limit: float | None = None, max_states: int = MAX_STATES) -> Solution:
    """The cheapest selection that makes the goals available.

    ``time_limit`` (seconds, soft: the linear parts are always run) and ``max_states`` bound the effort; beyond them the
    best selection found comes with a true lower bound. Without a time limit the same problem has the same solution,
    whatever the hash seed. Raises ExtractionError if the problem is malformed or a goal can't be made at all.
    """
    start = time.perf_counter()
    limit = math.inf if time_limit is None else time_limit
    reduced = reduce(problem)
    sweep = Sweep.begin(reduced, elimination_order(reduced))
    if sweep.run_exact(max_states, start + limit / 2):
        if not sweep.states:
            raise ExtractionError(NOT_TOGETHER)
        found = solution(reduced, sweep.choices(), math.inf, SolverStats(method="frontier"))
    else:
        found = _within_limits(reduced, sweep, start, limit, max_states)
    stats = SolverStats(
        classes=len(problem.classes),
        kept_classes=len(sweep.order.steps),
        distinct_classes=reduced.distinct_classes,
        cyclic_classes=reduced.cyclic,
        widest=sweep.widest,
        seconds=time.perf_counter() - start,
        method=found.stats.method,
    )
    return replace(found, stats=stats)


def _within_limits(reduced: Reduced, sweep: Sweep, start: float, limit: float, max_states: int) -> Solution:
    """From where the exact sweep stopped: the best states, a relaxation, the greedy selection, and an ILP if small."""
    few = max(2, max_states // NARROWED)
    bound = reduced.lower_bound()
    found = _greedy(reduced, bound)
    if found is None or time.perf_counter() < start + limit:
        best = sweep.copy()
        best.run_narrowed(few, start + limit * 0.65, beam)
        if best.states and (found is None or best.cost < found.cost):
            found = solution(reduced, best.choices(), bound, SolverStats(method="beam"))
    if time.perf_counter() < start + limit:
        relaxed = sweep.copy()
        relaxed.run_narrowed(few, start + limit * 0.8, weaken)
        if not relaxed.states:
            raise ExtractionError(NOT_TOGETHER)
        bound = max(bound, relaxed.cost * (1 - 1e-12))
    if found is None or found.cost > bound * (1 + 1e-9):
        better = improve(reduced, found, start + limit - time.perf_counter())
        if better is not None:
            bound = max(bound, better.lower_bound)
            if found is None or better.cost < found.cost:
                found = solution(reduced, better.choices, bound, SolverStats(method="ilp"))
    if found is None:
        raise ExtractionError("no selection was found within the limits that does not make a tensor out of itself")
    return replace(found, lower_bound=min(bound, found.cost))


def _greedy(reduced: Reduced, bound: float) -> Solution | None:
    choices = greedy_choices(reduced)
    return None if choices is None else solution(reduced, choices, bound, SolverStats(method="greedy"))
