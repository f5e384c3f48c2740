"""The frontier dynamic program over an elimination order: all states (demanded stores), step by step.

In: an `EliminationOrder`, or the states at one of its steps. Out: the cheapest end with the choices that lead there;
exact, or narrowed to the best states (a solution), or weakened to fewer (a lower bound).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from eqsat_layout.extract.solver.blocks import SweepBlock, Touches
from eqsat_layout.extract.solver.dominance import prune
from eqsat_layout.extract.solver.narrowing import beam, weaken
from eqsat_layout.extract.solver.options import MadeStores
from eqsat_layout.extract.solver.order import EliminationOrder, EliminationStep
from eqsat_layout.extract.solver.reduce import Reduced
from eqsat_layout.extract.solver.remaining import Remaining
from eqsat_layout.extract.solver.states import Narrow, State, keep_cheaper
from eqsat_layout.extract.solver.transitions import Cycle, ShiftedTransitions

SPARE = 4
"""Narrowed sweeps compare this many times the states that they keep."""

TRIED = 16
"""Beams look at this many times the states that they keep: of unequal cost, most are never kept."""

LONGEST, LONGEST_EACH = 500_000, 500
"""States that an exact sweep compares in all, and more of them for each step. ResNet-50 takes 4 000 for 301 steps,
20 000 generated ops at most 15 for each; networks that are quantised as their data come took a quarter of an hour."""


@dataclass(slots=True)
class Sweep:
    """The states before ``step``. As long as nothing was narrowed they contain the beginning of an optimum."""

    reduced: Reduced
    order: EliminationOrder
    states: list[State]
    touches: Touches
    step: int = 0
    widest: int = 1
    known: dict[tuple[int, int, int], list[State]] = field(default_factory=dict)
    """What becomes of demands in blocks: by first step, end, and the demands."""
    compared: list[int] = field(default_factory=lambda: [0])
    """One number: states that were compared with others, those inside of blocks too."""
    remaining: Remaining | None = None
    """With it, states that can't end below ``limit`` are dropped."""
    limit: float = math.inf
    bound: float = 0.0
    """No end costs less, unless it costs ``limit`` or more; known where ``remaining`` is."""

    @classmethod
    def begin(cls, reduced: Reduced, order: EliminationOrder) -> Sweep:
        """The sweep before its first step."""
        return cls(reduced, order, [(0.0, order.start, None)], Touches(order))

    @property
    def left(self) -> int:
        """How many steps are to come."""
        return len(self.order.steps) - self.step

    def copy(self) -> Sweep:
        """A sweep that goes on from here on its own."""
        return Sweep(self.reduced, self.order, self.states, self.touches, self.step, self.widest)

    def after(self, step: int, demand: int, most: int) -> list[State]:
        """The states after one step from a demand on, relaxed where they would be too many."""
        alone = Sweep(self.reduced, self.order, [(0.0, demand, None)], self.touches, step)
        return alone._expand(self.order.steps[step], most, weaken) or []

    @property
    def cost(self) -> float:
        """The cost of the cheapest state; inf where none is left."""
        return self.states[0][0] if self.states else math.inf

    def choices(self) -> dict[int, MadeStores]:
        """What is made of which alias class on the way to the cheapest state."""
        chosen: dict[int, MadeStores] = {}
        work = [self.states[0][2]]
        while work:
            trail = work.pop()
            while trail is not None:
                if len(trail) == 2:
                    work.append(trail[1])
                else:
                    chosen[trail[1]] = trail[2][2]
                trail = trail[0]
        return chosen

    def run_exact(self, most: int, deadline: float) -> bool:
        """Go on to the end; False where it stopped: more than ``most`` states, too many in all steps, or late."""
        return self._run_to(len(self.order.steps), most, deadline)

    def _run_to(self, end: int, most: int, deadline: float) -> bool:
        while self.step < end:
            block = self.touches.block(self.step, end, [state[1] for state in self.states])
            if block is None:
                states = self._expand(self.order.steps[self.step], most)
            else:
                states = self._through(block, most, deadline)
            if states is None or len(states) > most or time.perf_counter() > deadline or self._is_long:
                return False
            self._advance(states, 1 if block is None else block.end - block.start)
        return True

    @property
    def _is_long(self) -> bool:
        """More states were compared than an exact sweep is worth, whatever the machine."""
        return self.compared[0] > LONGEST + LONGEST_EACH * len(self.order.steps)

    def _through(self, block: SweepBlock, most: int, deadline: float) -> list[State] | None:
        """The states at a block's end: what acts in it once for all states that differ in what waits.

        None where that takes more than ``most`` states at a time, those of all beginnings counted together.
        """
        found: dict[int, State] = {}
        for cost, bits, trail in self.states:
            acting = bits & block.acting
            ends = self.known.get((block.start, block.end, acting))
            if ends is None:
                inner = Sweep(self.reduced, self.order, [(0.0, acting, None)], self.touches, block.start)
                inner.known, inner.compared = self.known, self.compared
                if not inner._run_to(block.end, most, deadline):
                    return None
                most -= inner.widest
                self.widest = max(self.widest, inner.widest)
                ends = self.known[block.start, block.end, acting] = inner.states
            waiting = bits & ~block.acting
            for more, reached, within in ends:
                keep_cheaper(found, (cost + more, waiting | reached, (trail, within)))
        states = self._below_limit(sorted(found.values()), block.end)
        return prune(states, self.order.steps[block.end - 1].live)

    def run_narrowed(
        self, few: int, deadline: float, narrow: Narrow, known: dict[int, list[int]] | None = None
    ) -> None:
        """Go on to the end with at most ``few`` states after each step, and only one once it is late.

        ``known``: takes the demands before each step.
        """
        steps = self.order.steps
        if self.step and len(self.states) > SPARE * few:
            self.states = narrow(self.states, few, steps[self.step - 1].live)
        if known is not None:
            known[self.step] = [state[1] for state in self.states]
        while self.step < len(steps) and self.states:
            if few > 1 and time.perf_counter() > deadline:
                few = 1
            step = steps[self.step]
            states = self._expand(step, few, narrow)
            assert states is not None
            self._advance(states if len(states) <= few else narrow(states, few, step.live))
            if known is not None:
                known[self.step] = [state[1] for state in self.states]

    def drop_hopeless(self) -> None:
        """Without the states that can't end below the limit."""
        if self.step:
            self.states = self._below_limit(self.states, self.step)

    def _below_limit(self, states: list[State], step: int) -> list[State]:
        """The states (before a step) that may end below the limit."""
        if self.remaining is None or not states:
            return states
        ends = np.array([state[0] for state in states]) + self.remaining.of(step, states)
        self.bound = max(self.bound, float(ends.min()))
        return [states[i] for i in np.flatnonzero(ends < self.limit)]

    def _advance(self, states: list[State], steps: int = 1) -> None:
        self.states = states
        self.step += steps
        self.widest = max(self.widest, len(states))

    def _expand(self, step: EliminationStep, most: int, narrow: Narrow | None = None) -> list[State] | None:
        """The states after the step, by cost; None where only narrowing would do, and none is given."""
        expand = self._expand_one if len(step.classes) == 1 else self._expand_cycle
        found = expand(step, most, narrow)
        if found is None:
            return None
        states = self._below_limit(sorted(found), self.step + 1)
        self.compared[0] += len(states)
        if narrow is not None and len(states) > SPARE * most:
            states = narrow(states, SPARE * most, step.live)
        return prune(states, step.live)

    def _expand_one(self, step: EliminationStep, most: int, narrow: Narrow | None) -> Iterable[State] | None:
        alias_class, first = step.classes[0], step.firsts[0]
        table = ShiftedTransitions(self.reduced.of_class[alias_class], step.kid_firsts[0], narrow)
        mask = (1 << self.order.width) - 1
        clear = ~(mask << first)
        found: dict[int, State] = {}
        enough = self._enough(table, first, mask, TRIED * most) if narrow is beam else math.inf
        for state in self.states:
            cost, bits, trail = state
            demand = bits >> first & mask
            if not demand:
                old = found.get(bits)
                if old is None or cost < old[0]:
                    found[bits] = state
                continue
            options = table.of(demand)
            if options is None:
                return None
            bits &= clear
            for option in options:
                reached, total = bits | option[1], cost + option[0]
                if total > enough:
                    break
                old = found.get(reached)
                if old is None or total < old[0]:
                    found[reached] = (total, reached, (trail, alias_class, option))
        return found.values()

    def _enough(self, table: ShiftedTransitions, first: int, mask: int, most: int) -> float:
        """The cost up to which so many states can be reached in a step (each as often as there are ways to it)."""
        demands = [(cost, bits >> first & mask) for cost, bits, _ in self.states]
        ways = {demand: table.of(demand) or () for demand in {demand for _, demand in demands if demand}}
        if sum(len(ways[demand]) for _, demand in demands if demand) <= most:
            return math.inf
        added = {demand: np.array([option[0] for option in options]) for demand, options in ways.items()}
        costs = np.concatenate([cost + added[demand] for cost, demand in demands if demand])
        return float(np.partition(costs, most)[most])

    def _expand_cycle(self, step: EliminationStep, most: int, narrow: Narrow | None) -> Iterable[State] | None:
        """All alias classes of a cycle, each at most once, in every order in which users come before operands.

        A closed alias class (bits above all slots) has been supplied and must not be demanded again. Where nothing else
        that is open can demand an alias class, supplying it next loses nothing, so no other order is tried.
        """
        cycle = Cycle(self.reduced, self.order, step, narrow)
        done: dict[int, State] = {}
        layer = list(self.states)
        while layer:
            found: dict[int, State] = {}
            for state in layer:
                demanded = cycle.next(state[1])
                if not demanded:
                    keep_cheaper(done, (state[0], state[1] & cycle.below, state[2]))
                for place in demanded:
                    options = cycle.options(place, state[1])
                    if options is None:
                        return None
                    for option in options:
                        bits = cycle.close(place, state[1]) | option[1]
                        keep_cheaper(found, (state[0] + option[0], bits, (state[2], step.classes[place], option)))
            layer = sorted(found.values())
            if len(layer) > most:
                if narrow is None:
                    return None
                layer = narrow(layer, most, step.inner)
        return done.values()
