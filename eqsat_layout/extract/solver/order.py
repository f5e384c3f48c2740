"""The order in which the frontier solver meets the alias classes, users before operands.

In: a `Reduced`. Out: `EliminationStep`s, each with the bit slot of its alias classes in a state, and what is live after
it (`Live`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from eqsat_layout.extract.solver.reduce import Reduced
from eqsat_layout.extract.solver.reduced_class import ReducedClass

Field = tuple[int, ReducedClass, bool]
"""The first bit of a tensor's demand in a state, its reduced class, and whether all its users are behind."""


def differences(states: Sequence[int]) -> int:
    """The bits in which some of the states (at least one) differ."""
    found = 0
    for bits in states:
        found |= bits ^ states[0]
    return found


@dataclass(slots=True, eq=False)
class Live:
    """The tensors that a state after some step can demand; shared by steps that look alike.

    ``repairs``: cost of one state made to serve for another, by the state that lacks, then the one that has.
    ``steps``: how many share it.
    """

    fields: tuple[Field, ...]
    width: int
    repairs: dict[int, dict[int, float]] = field(default_factory=dict)
    steps: int = 0
    by_first: dict[int, Field] = field(init=False)

    def __post_init__(self) -> None:
        self.by_first = {field[0]: field for field in self.fields}

    def repair(self, has: int, lacks: int) -> float:
        """The most that completing ``has`` can cost more than completing ``lacks`` (see `ReducedClass.repair`)."""
        total, mask = 0.0, (1 << self.width) - 1
        for first, reduced_class, final in self.differing(has ^ lacks):
            total += reduced_class.repair(has >> first & mask, lacks >> first & mask, final)
        return total

    def differing(self, bits: int) -> Iterator[Field]:
        """The fields in which some of the bits lie: few of the many that are live in an unrolled network."""
        mask = (1 << self.width) - 1
        while bits:
            lowest = (bits & -bits).bit_length() - 1
            first = lowest - lowest % self.width
            if first in self.by_first:  # above all slots are the closed ones of a cycle
                yield self.by_first[first]
            bits &= ~(mask << first)

    def repair_all(self, has: Sequence[int], lacks: Sequence[int]) -> npt.NDArray[np.float64]:
        """`repair` of each of ``has`` (rows) for each of ``lacks`` (columns); demands on one tensor are few."""
        total = np.zeros((len(has), len(lacks)))
        mask = (1 << self.width) - 1
        for first, reduced_class, final in self.differing(differences([*has, *lacks])):
            rows, columns = ([bits >> first & mask for bits in states] for states in (has, lacks))
            row_of, column_of = ({demand: i for i, demand in enumerate(dict.fromkeys(d))} for d in (rows, columns))
            table = np.array(
                [[reduced_class.repair(a, b, final) if a != b else 0.0 for b in column_of] for a in row_of]
            )
            total += table[np.ix_([row_of[a] for a in rows], [column_of[b] for b in columns])]
        return total


@dataclass(slots=True, eq=False)
class EliminationStep:
    """Alias classes to expand together (several only in a cycle), the first bits of them and of their operands.

    ``live``: after the step; ``inner``: within a cycle's step, its own alias classes included.
    """

    classes: tuple[int, ...]
    firsts: tuple[int, ...]
    kid_firsts: tuple[tuple[int, ...], ...]
    live: Live
    inner: Live


@dataclass(slots=True, eq=False)
class EliminationOrder:
    """The steps, the bits per alias class (its stores and one for "any store"), how many slots, and the first state."""

    steps: list[EliminationStep]
    width: int
    slots: int
    start: int


def elimination_order(reduced: Reduced) -> EliminationOrder:
    """The steps in the order that keeps fewer tensors live."""
    graph = _Condensed(reduced)
    orders = [graph.highest_first(), graph.last_opened_first()]
    return _assign(reduced, [reduced.components[c] for c in min(orders, key=graph.width)])


class _Condensed:
    """The graph of components; numbers are positions in ``reduced.components`` (operands first)."""

    def __init__(self, reduced: Reduced) -> None:
        home = {f: c for c, classes in enumerate(reduced.components) for f in classes}
        self.kids: list[tuple[int, ...]] = []
        self.height: list[int] = []
        self.users = [0] * len(reduced.components)
        self.sizes = [len(classes) for classes in reduced.components]
        for c, classes in enumerate(reduced.components):
            kids = tuple(k for k in dict.fromkeys(home[g] for f in classes for g in reduced.kids[f]) if k != c)
            self.kids.append(kids)
            self.height.append(1 + max((self.height[k] for k in kids), default=0))
            for k in kids:
                self.users[k] += 1
        self.goals = dict.fromkeys(home[f] for f in reduced.goals)

    def highest_first(self) -> list[int]:
        """The component that is farthest from the leaves first: long ways before short cuts."""
        waiting = self.users.copy()
        ready = [(-self.height[c], -c) for c, n in enumerate(waiting) if not n]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            c = -heapq.heappop(ready)[1]
            order.append(c)
            for k in self.kids[c]:
                waiting[k] -= 1
                if not waiting[k]:
                    heapq.heappush(ready, (-self.height[k], -k))
        return order

    def last_opened_first(self) -> list[int]:
        """Depth first: one branch down to what it shares with the others, then the next."""
        waiting = self.users.copy()
        ready = sorted((c for c, n in enumerate(waiting) if not n), key=lambda c: (self.height[c], c))
        order: list[int] = []
        while ready:
            c = ready.pop()
            order.append(c)
            opened = []
            for k in self.kids[c]:
                waiting[k] -= 1
                if not waiting[k]:
                    opened.append(k)
            ready.extend(sorted(opened, key=lambda k: (self.height[k], k)))
        return order

    def width(self, order: Sequence[int]) -> int:
        """An estimate of the states met: two for each live tensor, multiplied, summed over the steps."""
        waiting = self.users.copy()
        live = set(self.goals)
        total = 0
        for c in order:
            live.discard(c)
            for k in self.kids[c]:
                live.add(k)
                waiting[k] -= 1
            total += 1 << min(2 * len(live), 60)
        return total


def _assign(reduced: Reduced, order: Sequence[tuple[int, ...]]) -> EliminationOrder:
    """Give each alias class the lowest free bit slot from its first user until its own step."""
    slots = _Slots(reduced, order)
    start = 0
    for f, demand in reduced.goals.items():
        slots.open(f)
        start |= demand << slots.first(f)
    steps = [slots.step(classes) for classes in order]
    return EliminationOrder(steps, slots.width, next(slots.fresh), start)


class _Slots:
    """Which bits are whose, step after step; slots that fall free are used again, so that like steps look alike."""

    def __init__(self, reduced: Reduced, order: Sequence[tuple[int, ...]]) -> None:
        self.reduced = reduced
        self.width = 1 + max((reduced.of_class[f].size for classes in order for f in classes), default=0)
        self.users: dict[int, int] = dict.fromkeys((f for classes in order for f in classes), 0)
        for f in self.users:
            for kid in reduced.kids[f]:
                self.users[kid] += 1
        self.slot: dict[int, int] = {}
        self.free: list[int] = []
        self.fresh = count()
        self.fields: dict[int, Field] = {}  # by slot
        self.shared: dict[tuple[tuple[int, int, bool], ...], Live] = {}

    def first(self, f: int) -> int:
        return self.slot[f] * self.width

    def open(self, f: int) -> None:
        if f not in self.slot:
            self.slot[f] = heapq.heappop(self.free) if self.free else next(self.fresh)
            self._set_field(f)

    def _set_field(self, f: int) -> None:
        self.fields[self.slot[f]] = (self.first(f), self.reduced.of_class[f], not self.users[f])

    def step(self, classes: tuple[int, ...]) -> EliminationStep:
        kids = self.reduced.kids
        for f in classes:
            self.open(f)
            for kid in kids[f]:
                self.open(kid)
                self.users[kid] -= 1
                if not self.users[kid]:
                    self._set_field(kid)
        inner = self._live() if len(classes) > 1 else None
        for f in classes:
            del self.fields[self.slot[f]]
            heapq.heappush(self.free, self.slot[f])
        live = self._live()
        firsts = tuple(self.first(f) for f in classes)
        return EliminationStep(
            classes, firsts, tuple(tuple(map(self.first, kids[f])) for f in classes), live, inner or live
        )

    def _live(self) -> Live:
        fields = tuple(self.fields[slot] for slot in sorted(self.fields))
        key = tuple((first, reduced_class.number, final) for first, reduced_class, final in fields)
        live = self.shared.setdefault(key, Live(fields, self.width))
        live.steps += 1
        return live
