"""Parts of the frontier sweep that do not concern all that is live: swept once for many states.

In: an `EliminationOrder`, states before a step. Out: how far states can go on without what some of their tensors are
demanded as (a skip connection's tensor, from its last reader up to the one that is read first), and what becomes of
the other demands on the way, each worked out once.

Proof. No step before ``SweepBlock.end`` reads or changes a waiting tensor's demand, so what a step adds to cost and
demand is the same whatever that demand is: min over ways (cost so far + cost of the way) is taken way by way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat_layout.extract.solver.order import EliminationOrder, differences

MANY = 64
"""Fewer states go on one by one."""
FOLD = 8
"""So many states at least have to share each of the demands that are worked out."""
SHORTEST = 2
"""The steps of a block, at least."""


@dataclass(frozen=True, slots=True)
class SweepBlock:
    """The steps from ``start`` to before ``end``; ``acting``: the bits of the tensors that they concern."""

    start: int
    end: int
    acting: int


@dataclass(slots=True, eq=False)
class Touches:
    """When each slot is supplied or demanded: its steps, by its first bit."""

    order: EliminationOrder
    by_first: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, step in enumerate(self.order.steps):
            for first in {*step.firsts, *(first for kids in step.kid_firsts for first in kids)}:
                self.by_first.setdefault(first, []).append(number)

    def block(self, start: int, end: int, states: Sequence[int]) -> SweepBlock | None:
        """The longest block that begins at a step and ends by ``end``, in which the states (bits) are few enough."""
        if len(states) < MANY:
            return None
        waits = self._waits(start, differences(states))
        for until in sorted({min(wait, end) for _, wait in waits}, reverse=True):
            if until < start + SHORTEST:
                return None
            waiting = sum(((1 << self.order.width) - 1) << first for first, wait in waits if wait >= until)
            acting = (1 << self.order.slots * self.order.width) - 1 & ~waiting
            if waiting and len({bits & acting for bits in states}) * FOLD <= len(states):
                return SweepBlock(start, until, acting)
        return None

    def _waits(self, start: int, differing: int) -> list[tuple[int, int]]:
        """The first bits of the slots in which states differ, and the next step that each takes part in."""
        width, found = self.order.width, []
        while differing:
            first = ((differing & -differing).bit_length() - 1) // width * width
            steps = self.by_first.get(first, [])
            place = bisect_left(steps, start)
            if place < len(steps):
                found.append((first, steps[place]))
            differing &= ~(((1 << width) - 1) << first)
        return found
