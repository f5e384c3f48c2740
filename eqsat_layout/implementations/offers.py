"""What may take the place of the ops of a program: other layouts, other algorithms.

In: made by the target and by the user. Out: plain data that :class:`~eqsat_layout.egraph.answers.Answers` hands to the
rules. A frozen op has no offers: it is an op with one candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from eqsat_layout.cost.model import Roofline
from eqsat_layout.graph.constants import GROWTH
from eqsat_layout.graph.graph import Graph
from eqsat_layout.implementations.algorithms import Algorithm
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.placement import FLAT, Placement


@dataclass(frozen=True)
class Alternative:
    """A graph of ops with the same value as one op: node n of it stands for operand ``params[n]``, if it is not None.

    ``approx``: equal but for rounding of another order of magnitude than re-association. ``growth``: see
    :class:`~eqsat_layout.implementations.algorithms.Algorithm`.
    """

    name: str
    graph: Graph
    params: tuple[int | None, ...]
    result: int
    approx: bool = False
    growth: float = GROWTH


class Implementer(Placement, Protocol):
    """What is asked of a target: which implementations its kernels have."""

    def candidates(self, computation: Computation) -> Sequence[Candidate]:
        """Formats that a layout-critical op may also run in."""
        ...

    def algorithms(self) -> Sequence[Algorithm]:
        """Other ways to compute what blocks compute."""
        ...


@dataclass(frozen=True)
class Offers:
    """By signature key: layouts that an op could run in, and graphs that could replace it.

    ``free``: contractions that also run in any order of the axes of each of their operands and of their result.
    ``inner``: keys that only graphs have.
    ``one_way``: of these, the ones through which layouts flow "backward" only (they feed an op that has layouts of its
    own to offer) or "forward" only (they follow one): a graph takes its layouts from its dominant ops, and stays small.
    ``growth``: how many times the elements of its constants an op that only graphs have may make of them when it is
    folded. ``placement``: in which memories the target's kernels read and write. ``implementer``: who is asked for the
    offers of ops that rules make; None where nothing is offered. ``prices``: what tells which algorithms can't pay;
    None where all are offered. ``slower``: those that can't, by op and name, with the reason.
    """

    layouts: Mapping[str, tuple[Candidate, ...]] = field(default_factory=dict)
    graphs: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    one_way: Mapping[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    growth: Mapping[str, float] = field(default_factory=dict)
    placement: Placement = FLAT
    implementer: Implementer | None = None
    prices: Roofline | None = None
    slower: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def joined(self, more: Offers) -> Offers:
        """These and those for other ops."""
        return replace(
            self,
            layouts={**self.layouts, **more.layouts},
            graphs={**self.graphs, **more.graphs},
            inner=self.inner | more.inner,
            one_way={**self.one_way, **more.one_way},
            free=self.free | more.free,
            growth={**self.growth, **more.growth},
            slower={**self.slower, **more.slower},
        )
