"""The selection problem: which stores of which tensors are made, how, and what supplies the others.

In: alias classes of stores with their nodes and one-hop conversions. Out: a `Solution`, re-computable with `cost_of`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_layout.errors import EqsatError

StoreId = tuple[int, int]
"""An alias class's index and the index of one of its stores."""
ConversionMatrix = tuple[tuple[float, ...], ...]
"""Costs from one store of an alias class (rows) to another (columns)."""


class ExtractionError(EqsatError):
    """A selection problem that is malformed or has no solution, or an answer that is not a solution of it."""


@dataclass(frozen=True, slots=True)
class ENode:
    """One way to make a store: its cost in seconds (>= 0) and the stores that must be available for it."""

    cost: float
    children: tuple[StoreId, ...] = ()


@dataclass(frozen=True, slots=True)
class AliasClass:
    """One tensor with its views; its stores are the formats that it can lie in.

    ``nodes[s]``: the ways to make store s; may be empty (then only a conversion reaches s).
    ``convert[i][j]``: the cost of having store j available from store i made; 0 on the diagonal, inf where illegal.
    One hop only. Equal matrices should be one object. Stores that are the same bytes (`same_bytes`) are paid for once.
    """

    nodes: tuple[tuple[ENode, ...], ...]
    convert: ConversionMatrix


@dataclass(frozen=True, slots=True)
class Problem:
    """Alias classes, and the stores that must be available at the end."""

    classes: tuple[AliasClass, ...]
    goals: tuple[StoreId, ...]


@dataclass(frozen=True, slots=True)
class SolverStats:
    """What the solver met: sizes before and after reduction, the widest frontier, and how the answer was found."""

    classes: int = 0
    distinct_classes: int = 0
    widest: int = 0
    seconds: float = 0.0
    method: str = "frontier"


@dataclass(frozen=True)
class Solution:
    """Chosen nodes and suppliers, their cost in seconds, and a bound that no solution's cost is below.

    ``made[f, s]``: index into ``classes[f].nodes[s]``. ``source[f, s]``: for each demanded store the made store of
    the same alias class that supplies it (itself, where it is made), or another that is the same bytes, so supplied.
    """

    cost: float
    lower_bound: float
    made: Mapping[StoreId, int]
    source: Mapping[StoreId, int]
    stats: SolverStats = field(default_factory=SolverStats, compare=False)

    @property
    def proven(self) -> bool:
        """Whether no solution is cheaper (to 1e-9, relative)."""
        return self.cost <= self.lower_bound * (1 + 1e-9)

    @property
    def gap(self) -> float:
        """How much of the cost a better solution could save at most, 0..1."""
        return 0.0 if self.proven else (self.cost - self.lower_bound) / self.cost


def check_problem(problem: Problem) -> None:
    """Raises ExtractionError for a problem that is malformed, with the alias class, goal or node at fault."""
    sizes = [len(alias_class.nodes) for alias_class in problem.classes]

    def exists(store: StoreId) -> bool:
        return 0 <= store[0] < len(sizes) and 0 <= store[1] < sizes[store[0]]

    for goal in problem.goals:
        if not exists(goal):
            raise ExtractionError(f"goal {goal} is not a store of the problem")
    checked: set[tuple[int, int]] = set()
    for f, alias_class in enumerate(problem.classes):
        if (id(alias_class.convert), sizes[f]) not in checked:
            _check_matrix(f, alias_class)
            checked.add((id(alias_class.convert), sizes[f]))
        for s, ways in enumerate(alias_class.nodes):
            for index, node in enumerate(ways):
                if not node.cost >= 0:
                    raise ExtractionError(f"store {(f, s)}: node {index}'s cost is negative or not a number")
                for child in node.children:
                    if not exists(child):
                        raise ExtractionError(f"store {(f, s)}: node {index}'s operand {child} does not exist")


def _check_matrix(f: int, alias_class: AliasClass) -> None:
    size = len(alias_class.nodes)
    if len(alias_class.convert) != size or any(len(row) != size for row in alias_class.convert):
        raise ExtractionError(f"alias class {f}: the conversion matrix is not {size} x {size}")
    if any(alias_class.convert[i][i] != 0 for i in range(size)):
        raise ExtractionError(f"alias class {f}: a store's conversion to itself must cost 0")
    if any(not cost >= 0 for row in alias_class.convert for cost in row):
        raise ExtractionError(f"alias class {f}: a conversion cost is negative or not a number")


def same_bytes(convert: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """For each store the first that is the same bytes: free both ways, and the same from and to all others."""
    leader: dict[tuple[Sequence[float], Sequence[float]], int] = {}
    columns = zip(*convert, strict=True)
    return tuple(leader.setdefault(key, s) for s, key in enumerate(zip(map(tuple, convert), columns, strict=True)))


def cost_of(problem: Problem, made: Mapping[StoreId, int], source: Mapping[StoreId, int]) -> float:
    """The cost of a selection, computed from the problem alone.

    Raises ExtractionError if it is no solution: a goal or an operand that nothing supplies, a supplier that isn't made,
    an illegal conversion, or a tensor that is made, directly or not, out of itself. Selected but unused parts cost too.
    """
    terms: list[float] = []
    depends: dict[int, list[int]] = {}
    for goal in problem.goals:
        if goal not in source:
            raise ExtractionError(f"goal {goal} is not supplied")
    for (f, s), index in made.items():
        node = _node(problem, f, s, index)
        terms.append(node.cost)
        for child in node.children:
            if child not in source:
                raise ExtractionError(f"store {(f, s)} is made from {child}, which is not supplied")
            depends.setdefault(f, []).append(child[0])
    for (f, s), supplier in source.items():
        if (f, supplier) not in made and not _is_view(problem, made, source, (f, s)):
            raise ExtractionError(f"store {(f, s)} is supplied by {(f, supplier)}, which is not made")
        step = problem.classes[f].convert[supplier][s]
        if step == math.inf:
            raise ExtractionError(f"store {(f, s)} can't be converted from {(f, supplier)}")
        terms.append(step)
    _check_acyclic(depends)
    return math.fsum(terms)


def _is_view(problem: Problem, made: Mapping[StoreId, int], source: Mapping[StoreId, int], store: StoreId) -> bool:
    """Whether it is supplied by a copy of the same bytes, which is supplied by what is made."""
    f, s = store
    copy = source[store]
    leaders = same_bytes(problem.classes[f].convert)
    return copy != s and leaders[copy] == leaders[s] and (f, source.get((f, copy), -1)) in made


def _node(problem: Problem, f: int, s: int, index: int) -> ENode:
    if not (0 <= f < len(problem.classes) and 0 <= s < len(problem.classes[f].nodes)):
        raise ExtractionError(f"there is no store {(f, s)}")
    ways = problem.classes[f].nodes[s]
    if not 0 <= index < len(ways):
        raise ExtractionError(f"store {(f, s)} has no node {index}")
    return ways[index]


def _check_acyclic(depends: Mapping[int, list[int]]) -> None:
    waiting = dict.fromkeys(depends, 0)
    for kids in depends.values():
        for kid in kids:
            if kid in waiting:
                waiting[kid] += 1
    ready = [f for f, n in waiting.items() if not n]
    while ready:
        f = ready.pop()
        del waiting[f]
        for kid in depends[f]:
            if kid in waiting:
                waiting[kid] -= 1
                if not waiting[kid]:
                    ready.append(kid)
    if waiting:
        raise ExtractionError(f"alias class {min(waiting)} is made out of itself")
