"""Room: extract. The order in which the frontier solver meets the families, users before operands.

In: a `Reduced`. Out: `Step`s, each with the bit slot of its families in a state, and what is live after it (`Live`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from eqsat_layout.extract.reduce import Reduced
from eqsat_layout.extract.template import Template


@dataclass(slots=True, eq=False)
class Live:
    """The tensors that a state after some step can demand; shared by steps that look alike.

    ``fields``: first bit, template, and whether all users are behind. ``repairs``: cost of one state made to serve for
    another, by (state that has, state that lacks).
    """

    fields: tuple[tuple[int, Template, bool], ...]
    width: int
    repairs: dict[tuple[int, int], float] = field(default_factory=dict)

    def repair(self, has: int, lacks: int) -> float:
        """The most that completing ``has`` can cost more than completing ``lacks`` (see `Template.repair`)."""
        total, mask = 0.0, (1 << self.width) - 1
        for first, template, final in self.fields:
            a, b = has >> first & mask, lacks >> first & mask
            if a != b:
                total += template.repair(a, b, final)
        return total


@dataclass(slots=True, eq=False)
class Step:
    """Families to expand together (several only in a cycle), the first bits of them and of their operands.

    ``live``: after the step; ``inner``: within a cycle's step, its own families included.
    """

    families: tuple[int, ...]
    firsts: tuple[int, ...]
    kid_firsts: tuple[tuple[int, ...], ...]
    live: Live
    inner: Live


@dataclass(slots=True, eq=False)
class Plan:
    """The steps, the bits per family (its stores and one for "any store"), how many slots, and the first state."""

    steps: list[Step]
    width: int
    slots: int
    start: int


def plan(reduced: Reduced) -> Plan:
    """The steps in the order that keeps fewer tensors live."""
    graph = _Condensed(reduced)
    orders = [graph.highest_first(), graph.last_opened_first()]
    return _assign(reduced, [reduced.components[c] for c in min(orders, key=graph.width)])


class _Condensed:
    """The graph of components; numbers are positions in ``reduced.components`` (operands first)."""

    def __init__(self, reduced: Reduced) -> None:
        home = {f: c for c, families in enumerate(reduced.components) for f in families}
        self.kids: list[tuple[int, ...]] = []
        self.height: list[int] = []
        self.users = [0] * len(reduced.components)
        self.sizes = [len(families) for families in reduced.components]
        for c, families in enumerate(reduced.components):
            kids = tuple(k for k in dict.fromkeys(home[g] for f in families for g in reduced.kids[f]) if k != c)
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


def _assign(reduced: Reduced, order: Sequence[tuple[int, ...]]) -> Plan:
    """Give each family the lowest free bit slot from its first user until its own step."""
    width = 1 + max((t.size for t in (reduced.template[f] for c in order for f in c)), default=0)
    users: dict[int, int] = dict.fromkeys((f for c in order for f in c), 0)
    for f in users:
        for kid in reduced.kids[f]:
            users[kid] += 1
    slot: dict[int, int] = {}
    free: list[int] = []
    fresh = count()
    fields: dict[int, tuple[int, Template, bool]] = {}  # slot -> field
    shared: dict[tuple[tuple[int, int, bool], ...], Live] = {}

    def open_slot(f: int) -> None:
        if f not in slot:
            slot[f] = heapq.heappop(free) if free else next(fresh)
            fields[slot[f]] = (slot[f] * width, reduced.template[f], not users[f])

    start = 0
    for f, demand in reduced.goals.items():
        open_slot(f)
        start |= demand << slot[f] * width
    steps: list[Step] = []
    for families in order:
        for f in families:
            open_slot(f)
            for kid in reduced.kids[f]:
                open_slot(kid)
        for f in families:
            for kid in reduced.kids[f]:
                users[kid] -= 1
                if not users[kid]:
                    fields[slot[kid]] = (slot[kid] * width, reduced.template[kid], True)
        inner = Live(tuple(fields[i] for i in sorted(fields)), width) if len(families) > 1 else None
        for f in families:
            del fields[slot[f]]
        key = tuple((first, t.number, final) for first, t, final in map(fields.__getitem__, sorted(fields)))
        live = shared.get(key)
        if live is None:
            live = shared[key] = Live(tuple(fields[i] for i in sorted(fields)), width)
        firsts = tuple(slot[f] * width for f in families)
        kid_firsts = tuple(tuple(slot[kid] * width for kid in reduced.kids[f]) for f in families)
        steps.append(Step(families, firsts, kid_firsts, live, inner or live))
        for f in families:
            heapq.heappush(free, slot[f])
    return Plan(steps, width, next(fresh), start)
