"""The ways in which a step of a frontier sweep can supply what is demanded.

In: a step of an elimination order, and the demands in a state. Out: options: what each costs and demands of operands.
"""

from __future__ import annotations

from eqsat_layout.extract.solver.narrowing import weaken
from eqsat_layout.extract.solver.options import Option
from eqsat_layout.extract.solver.order import EliminationOrder, EliminationStep
from eqsat_layout.extract.solver.reduce import Reduced
from eqsat_layout.extract.solver.reduced_class import ReducedClass
from eqsat_layout.extract.solver.states import Narrow


class ShiftedTransitions:
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


class Cycle:
    """The alias classes of a cycle as one step: which are closed, which may be supplied next, and how."""

    def __init__(self, reduced: Reduced, order: EliminationOrder, step: EliminationStep, narrow: Narrow | None) -> None:
        mask = (1 << order.width) - 1
        self.top = order.slots * order.width
        self.below = (1 << self.top) - 1
        self.fields = [mask << first for first in step.firsts]
        self.firsts = step.firsts
        self.tables = [
            ShiftedTransitions(reduced.of_class[f], kid_firsts, narrow)
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
