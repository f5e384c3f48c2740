"""The frontier dynamic program over an elimination order: all states (demanded stores), step by step.

In: an `EliminationOrder`, or the states at one of its steps. Out: the cheapest end with the choices that lead there;
exact, or narrowed to the best states (a solution), or weakened to fewer (a lower bound).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eqsat_layout.extract.solver.blocks import SweepBlock, Touches
from eqsat_layout.extract.solver.order import EliminationOrder, EliminationStep, Live, differences
from eqsat_layout.extract.solver.reduce import Reduced
from eqsat_layout.extract.solver.reduced_class import MadeStores, Option, ReducedClass

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
SPARE = 4
"""Narrowed sweeps compare this many times the states that they keep."""
NOISE = 1e-14
"""Costs that differ by less than this, relative, count as equal: rounding, far below the 1e-9 of a proof."""

LONGEST, LONGEST_EACH = 500_000, 500
"""States that an exact sweep compares in all, and more of them for each step. ResNet-50 takes 4 000 for 301 steps,
20 000 generated ops at most 15 for each; networks that are quantised as their data come took a quarter of an hour."""

State = tuple[float, int, "Trail | None"]
"""Cost so far, demanded stores as bits, and how it was reached. Bits differ within a list, so trails never compare."""
Trail = tuple["Trail | None", int, Option] | tuple["Trail | None", "Trail | None"]
"""The trail before, the alias class that was supplied, and how; or the trail before a block, and the one in it."""
Narrow = Callable[[list[State], int, Live], list[State]]
"""Makes at most so many of too many states (sorted by cost): `beam` or `weaken`."""


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
                _keep(found, (cost + more, waiting | reached, (trail, within)))
        return prune(sorted(found.values()), self.order.steps[block.end - 1].live)

    def run_narrowed(self, few: int, deadline: float, narrow: Narrow) -> None:
        """Go on to the end with at most ``few`` states after each step, and only one once it is late."""
        steps = self.order.steps
        while self.step < len(steps) and self.states:
            if few > 1 and time.perf_counter() > deadline:
                few = 1
            step = steps[self.step]
            states = self._expand(step, few, narrow)
            assert states is not None
            self._advance(states if len(states) <= few else narrow(states, few, step.live))

    def _advance(self, states: list[State], steps: int = 1) -> None:
        self.states = states
        self.step += steps
        self.widest = max(self.widest, len(states))

    def _expand(self, step: EliminationStep, most: int, narrow: Narrow | None = None) -> list[State] | None:
        """The states after the step, by cost; None where only narrowing would do, and none is given."""
        found = self._expand_one(step, narrow) if len(step.classes) == 1 else self._expand_cycle(step, most, narrow)
        if found is None:
            return None
        states = sorted(found)
        self.compared[0] += len(states)
        if narrow is not None and len(states) > SPARE * most:
            states = narrow(states, SPARE * most, step.live)
        return prune(states, step.live)

    def _expand_one(self, step: EliminationStep, narrow: Narrow | None) -> Iterable[State] | None:
        alias_class, first = step.classes[0], step.firsts[0]
        table = _ShiftedTransitions(self.reduced.of_class[alias_class], step.kid_firsts[0], narrow)
        mask = (1 << self.order.width) - 1
        clear = ~(mask << first)
        found: dict[int, State] = {}
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
                old = found.get(reached)
                if old is None or total < old[0]:
                    found[reached] = (total, reached, (trail, alias_class, option))
        return found.values()

    def _expand_cycle(self, step: EliminationStep, most: int, narrow: Narrow | None) -> Iterable[State] | None:
        """All alias classes of a cycle, each at most once, in every order in which users come before operands.

        A closed alias class (bits above all slots) has been supplied and must not be demanded again. Where nothing else
        that is open can demand an alias class, supplying it next loses nothing, so no other order is tried.
        """
        cycle = _Cycle(self.reduced, self.order, step, narrow)
        done: dict[int, State] = {}
        layer = list(self.states)
        while layer:
            found: dict[int, State] = {}
            for state in layer:
                demanded = cycle.next(state[1])
                if not demanded:
                    _keep(done, (state[0], state[1] & cycle.below, state[2]))
                for place in demanded:
                    options = cycle.options(place, state[1])
                    if options is None:
                        return None
                    for option in options:
                        bits = cycle.close(place, state[1]) | option[1]
                        _keep(found, (state[0] + option[0], bits, (state[2], step.classes[place], option)))
            layer = sorted(found.values())
            if len(layer) > most:
                if narrow is None:
                    return None
                layer = narrow(layer, most, step.inner)
        return done.values()


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
            for before, has in others:
                step = row.get(has)
                if step is None:
                    step = row[has] = reduced_class.repair(has, lacks, final)
                if before + step <= enough:
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
            _keep(weaker, (cost, bits, trail))
        rest = weaker
    if len(whole) + len(rest) > few:
        common = -1
        for bits in rest:
            common &= bits
        best = min(rest.values())
        rest = {common: (best[0], common, best[2])}
    cheapest_by_demand = {state[1]: state for state in reversed(whole)}
    for state in rest.values():
        _keep(cheapest_by_demand, state)
    return sorted(cheapest_by_demand.values())


def _keep(found: dict[int, State], state: State) -> None:
    old = found.get(state[1])
    if old is None or state[0] < old[0]:
        found[state[1]] = state


class _ShiftedTransitions:
    """A reduced class's transitions with the operand bits where this order has them."""

    def __init__(self, reduced_class: ReducedClass, kid_firsts: tuple[int, ...], narrow: Narrow | None) -> None:
        self.reduced_class = reduced_class
        self.kid_firsts = kid_firsts
        self.narrow = narrow
        self.known = reduced_class.placed.setdefault(kid_firsts, {})
        self.cut: dict[int, tuple[Option, ...]] = {}

    def of(self, demand: int) -> tuple[Option, ...] | None:
        """The options; None where they are too many to list all, which only narrowing can do with."""
        found = self.known.get(demand) or self.cut.get(demand)
        if found is not None:
            return found
        transitions = self.reduced_class.transitions(demand)
        if not transitions.exact:
            if self.narrow is None:
                return None
            if self.narrow is weaken:
                transitions = self.reduced_class.transitions(1 << self.reduced_class.size)
            found = self.cut[demand] = tuple(map(self._place, transitions.options))
            return found
        found = self.known[demand] = tuple(map(self._place, transitions.options))
        return found

    def _place(self, option: Option) -> Option:
        bits = 0
        for (start, size), first in zip(self.reduced_class.regions, self.kid_firsts, strict=True):
            bits |= (option[1] >> start & (1 << size) - 1) << first
        return option[0], bits, option[2]


class _Cycle:
    """The alias classes of a cycle as one step: which are closed, which may be supplied next, and how."""

    def __init__(self, reduced: Reduced, order: EliminationOrder, step: EliminationStep, narrow: Narrow | None) -> None:
        mask = (1 << order.width) - 1
        self.top = order.slots * order.width
        self.below = (1 << self.top) - 1
        self.fields = [mask << first for first in step.firsts]
        self.firsts = step.firsts
        self.tables = [
            _ShiftedTransitions(reduced.of_class[f], kid_firsts, narrow)
            for f, kid_firsts in zip(step.classes, step.kid_firsts, strict=True)
        ]
        home = {f: place for place, f in enumerate(step.classes)}
        self.users = [0] * len(step.classes)
        for f, place in home.items():
            for kid in reduced.kids[f]:
                if kid in home:
                    self.users[home[kid]] |= 1 << place

    def next(self, bits: int) -> list[int]:
        """The places of the alias classes to supply next; empty if none is demanded."""
        closed = bits >> self.top
        demanded = [place for place, region in enumerate(self.fields) if bits & region]
        for place in demanded:
            if not self.users[place] & ~closed:
                return [place]
        return demanded

    def options(self, place: int, bits: int) -> list[Option] | None:
        """The ways to supply it that demand nothing of closed alias classes."""
        demand = (bits & self.fields[place]) >> self.firsts[place]
        options = self.tables[place].of(demand)
        if options is None:
            return None
        closed = (bits >> self.top) | 1 << place
        forbidden = 0
        for other, region in enumerate(self.fields):
            if closed >> other & 1:
                forbidden |= region
        return [option for option in options if not option[1] & forbidden]

    def close(self, place: int, bits: int) -> int:
        """The state with the alias class's demand met and the alias class closed."""
        return bits & ~self.fields[place] | 1 << self.top + place
