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
from eqsat_layout.extract.solver.problem import ExtractionError, Problem, Solution, SolverStats, check_problem
from eqsat_layout.extract.solver.reduce import Reduced, reduce
from eqsat_layout.extract.solver.remaining import Remaining
from eqsat_layout.extract.solver.same_bytes import Merged
from eqsat_layout.extract.solver.sweep import Sweep

MAX_STATES = 100_000
"""States up to which the dynamic program stays exact. DenseNet-121 has 62 000 on OpenCL, in 17 s more than 40 000."""
FIRST = 1_000
"""So many at first: beyond, the narrow sweeps often prove the optimum sooner than the exact one."""
NARROW = (4, 32)
"""The states that the beam and the relaxation keep, as long as their results differ."""
LIMITING = NARROW[-1]
"""With so many, the states that the relaxation kept say what can still become an optimum."""
WIDER = 128
"""Then so many in a relaxation."""
NARROWED = 24
"""The last time they keep one of this many of ``max_states``."""
WORK = 200_000
"""Or fewer, for this many in all steps together: unrolled networks have thousands of steps."""
RELAXED = 4
"""A relaxation looks at every state that its own lead to, a beam does not: of so many it keeps one, then."""
NEAR, LONG = 0.005, 20_000
"""Narrow sweeps of more states than this, in all steps, are not worth a gap below this."""
STUCK = 0.02
"""More states are no use to a relaxation whose bound rose, for eight times as many, by less of the gap."""
SAME = 1e-10
"""Ends that are not better than what was found by this much, relative, are not followed."""
NOT_TOGETHER = "the goals can be made one by one, but not together without making a tensor out of itself"


def solve(problem: Problem, *, time_limit: float | None = None, max_states: int = MAX_STATES) -> Solution:
    """The cheapest selection that makes the goals available.

    ``time_limit`` (seconds, soft: the linear parts are always run) and ``max_states`` bound the effort; beyond them the
    best selection found comes with a true lower bound. Without a time limit the same problem has the same solution,
    whatever the hash seed. Raises ExtractionError if the problem is malformed or a goal can't be made at all.
    """
    check_problem(problem)
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
        distinct_classes=reduced.distinct_classes,
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
    if max_states > WIDER * NARROWED and WIDER * sweep.left <= WORK:
        narrow.relax(sweep, WIDER)
        narrow.limit(sweep)
    if not narrow.proven:
        if sweep.run_exact(max_states, start + limit / 2):
            return narrow.best_of(sweep)
        narrow.bound = max(narrow.bound, min(sweep.bound, sweep.limit) * (1 - 1e-12))
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
    return replace(found, lower_bound=found.cost if narrow.proven else min(bound, found.cost))


class _Narrow:
    """The best selection and the highest bound so far of sweeps that keep few states."""

    def __init__(self, reduced: Reduced, start: float, limit: float) -> None:
        self.reduced, self.start, self.time = reduced, start, limit
        self.bound = reduced.lower_bound()
        choices = greedy_choices(reduced)
        self.found = None if choices is None else solution(reduced, choices, self.bound, SolverStats(method="greedy"))
        self.is_stuck = False
        self.known: dict[int, list[int]] = {}

    @property
    def proven(self) -> bool:
        """Whether nothing can be better than what was found (to 1e-9, relative)."""
        return self._is_within(1e-9)

    def _is_within(self, gap: float) -> bool:
        return self.found is not None and self.found.cost <= self.bound * (1 + gap)

    def run(self, sweep: Sweep, few: int) -> None:
        """A beam and a relaxation from where a sweep is; neither where it is late or what was found is good enough."""
        if self._is_within(NEAR if few * sweep.left > LONG else 1e-9):
            return
        if self.found is None or self._in_time():
            best = sweep.copy()
            best.run_narrowed(few, self.start + self.time * 0.65, beam)
            if best.states and (self.found is None or best.cost < self.found.cost):
                self.found = solution(self.reduced, best.choices(), self.bound, SolverStats(method="beam"))
        self.relax(sweep, few if few in NARROW else max(2, few // RELAXED))

    def relax(self, sweep: Sweep, few: int) -> None:
        """A relaxation, if there is time and a hope of a higher bound."""
        if self.proven or self.is_stuck or not self._in_time():
            return
        relaxed, known = sweep.copy(), self.known if few == LIMITING else None
        relaxed.run_narrowed(few, self.start + self.time * 0.8, weaken, known)
        if not relaxed.states and sweep.limit == math.inf:
            raise ExtractionError(NOT_TOGETHER)
        risen = max(self.bound, min(relaxed.cost, sweep.limit) * (1 - 1e-12))
        if few > NARROW[0] and self.found is not None:
            self.is_stuck = risen - self.bound < STUCK * (self.found.cost - self.bound)
        self.bound = risen

    def limit(self, sweep: Sweep) -> None:
        """Have the sweep follow only what may end below the cost of what was found."""

        def is_late() -> bool:
            return time.perf_counter() > self.start + self.time / 2

        if not self.known or self.found is None or self.proven or is_late():
            return
        many = WIDER * WIDER
        sweep.remaining = Remaining(sweep.order, self.known, lambda step, bits: sweep.after(step, bits, many), is_late)
        sweep.limit = self.found.cost * (1 - SAME)
        sweep.drop_hopeless()

    def best_of(self, sweep: Sweep) -> Solution:
        """The optimum, after a sweep that left out only what can't be better than what was found."""
        if self.found is None or sweep.cost < self.found.cost:
            return _at_end(self.reduced, sweep)
        return replace(self.found, lower_bound=self.found.cost)

    def _in_time(self) -> bool:
        return time.perf_counter() < self.start + self.time
