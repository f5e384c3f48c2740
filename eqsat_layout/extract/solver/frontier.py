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
from eqsat_layout.extract.solver.narrowing import beam, weaken
from eqsat_layout.extract.solver.order import elimination_order
from eqsat_layout.extract.solver.problem import ExtractionError, Problem, Solution, SolverStats, check
from eqsat_layout.extract.solver.reduce import Reduced, reduce
from eqsat_layout.extract.solver.same_bytes import Merged
from eqsat_layout.extract.solver.sweep import Sweep

MAX_STATES = 40_000
"""States up to which the dynamic program stays exact."""
FIRST = 1_000
"""So many at first: beyond, the narrow sweeps often prove the optimum sooner than the exact one."""
NARROW = (4, 32)
"""The states that the beam and the relaxation keep, as long as their results differ."""
NARROWED = 24
"""The last time they keep one of this many of ``max_states``."""
WORK = 200_000
"""Or fewer, for this many in all steps together: unrolled networks have thousands of steps."""
NEAR, LONG = 0.005, 20_000
"""Narrow sweeps of more states than this, in all steps, are not worth a gap below this."""
NOT_TOGETHER = "the goals can be made one by one, but not together without making a tensor out of itself"


def solve(problem: Problem, *, time_limit: float | None = None, max_states: int = MAX_STATES) -> Solution:
    """The cheapest selection that makes the goals available.

    ``time_limit`` (seconds, soft: the linear parts are always run) and ``max_states`` bound the effort; beyond them the
    best selection found comes with a true lower bound. Without a time limit the same problem has the same solution,
    whatever the hash seed. Raises ExtractionError if the problem is malformed or a goal can't be made at all.
    """
    check(problem)
    merged = Merged(problem)
    return merged.restore(_solve(merged.problem, time_limit, max_states))


def _solve(problem: Problem, time_limit: float | None, max_states: int) -> Solution:
    start = time.perf_counter()
    limit = math.inf if time_limit is None else time_limit
    reduced = reduce(problem)
    sweep = Sweep.begin(reduced, elimination_order(reduced))
    if sweep.run_exact(min(FIRST, max_states), start + limit / 2):
        found = _at_end(reduced, sweep)
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


def _at_end(reduced: Reduced, sweep: Sweep) -> Solution:
    if not sweep.states:
        raise ExtractionError(NOT_TOGETHER)
    return solution(reduced, sweep.choices(), math.inf, SolverStats(method="frontier"))


def _within_limits(reduced: Reduced, sweep: Sweep, start: float, limit: float, max_states: int) -> Solution:
    """From where the exact sweep stopped: narrow sweeps, the exact one, wider narrow ones, and an ILP if small."""
    narrow = _Narrow(reduced, start, limit)
    for few in NARROW:
        if few * NARROWED < max_states:
            narrow.run(sweep, few)
    if not narrow.proven:
        if sweep.run_exact(max_states, start + limit / 2):
            return _at_end(reduced, sweep)
        narrow.run(sweep, max(2, min(max_states // NARROWED, WORK // sweep.left)))
    found, bound = narrow.found, narrow.bound
    if not narrow.proven:
        better = improve(reduced, found, start + limit - time.perf_counter())
        if better is not None:
            bound = max(bound, better.lower_bound)
            if found is None or better.cost < found.cost:
                found = solution(reduced, better.choices, bound, SolverStats(method="ilp"))
    if found is None:
        raise ExtractionError("no selection was found within the limits that does not make a tensor out of itself")
    return replace(found, lower_bound=min(bound, found.cost))


class _Narrow:
    """The best selection and the highest bound so far of sweeps that keep few states."""

    def __init__(self, reduced: Reduced, start: float, limit: float) -> None:
        self.reduced, self.start, self.limit = reduced, start, limit
        self.bound = reduced.lower_bound()
        choices = greedy_choices(reduced)
        self.found = None if choices is None else solution(reduced, choices, self.bound, SolverStats(method="greedy"))

    @property
    def proven(self) -> bool:
        """Whether nothing can be better than what was found (to 1e-9, relative)."""
        return self.found is not None and self.found.cost <= self.bound * (1 + 1e-9)

    def run(self, sweep: Sweep, few: int) -> None:
        """A beam and a relaxation from where a sweep is; neither where it is late or what was found is good enough."""
        enough = NEAR if few * sweep.left > LONG else 1e-9
        if self.found is not None and self.found.cost <= self.bound * (1 + enough):
            return
        if self.found is None or self._in_time():
            best = sweep.copy()
            best.run_narrowed(few, self.start + self.limit * 0.65, beam)
            if best.states and (self.found is None or best.cost < self.found.cost):
                self.found = solution(self.reduced, best.choices(), self.bound, SolverStats(method="beam"))
        if self._in_time():
            relaxed = sweep.copy()
            relaxed.run_narrowed(few, self.start + self.limit * 0.8, weaken)
            if not relaxed.states:
                raise ExtractionError(NOT_TOGETHER)
            self.bound = max(self.bound, relaxed.cost * (1 - 1e-12))

    def _in_time(self) -> bool:
        return time.perf_counter() < self.start + self.limit
