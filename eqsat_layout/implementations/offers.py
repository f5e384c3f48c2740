"""What may take the place of the ops of a program: other layouts, other algorithms.

In: made by the target and by the user. Out: plain data that :class:`~eqsat_layout.egraph.answers.Answers` hands to the
rules. A frozen op has no offers: it is an op with one candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat_layout.graph.graph import Graph
from eqsat_layout.implementations.layouts import Candidate


@dataclass(frozen=True)
class Alternative:
    """A graph of ops with the same value as one op: node n of it stands for operand ``params[n]``, if it is not None.

    ``approx``: equal but for rounding of another order of magnitude than re-association.
    """

    name: str
    graph: Graph
    params: tuple[int | None, ...]
    result: int
    approx: bool = False


@dataclass(frozen=True)
class Offers:
    """By signature key: layouts that an op could run in, and graphs that could replace it.

    ``free``: contractions that also run in any order of the axes of each of their operands and of their result.
    ``inner``: keys that only graphs have.
    ``one_way``: of these, the ones through which layouts flow "backward" only (they feed an op that has layouts of its
    own to offer) or "forward" only (they follow one): a graph takes its layouts from its hearts, and stays small.
    """

    layouts: Mapping[str, tuple[Candidate, ...]] = field(default_factory=dict)
    graphs: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    one_way: Mapping[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
