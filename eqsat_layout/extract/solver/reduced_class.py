"""What can be said about one tensor on its own: how a set of its stores is best supplied.

In: one alias class, reduced, its operand alias classes numbered locally. Out: transitions (demand -> cheapest ways),
and repair costs (how much dearer one demand can be than another). Equal alias classes share one `ReducedClass`, so each
is worked out once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from eqsat_layout.extract.solver.options import (
    KnownOptions,
    NodeTable,
    Option,
    ReducedNode,
    undominated,
    ways_to_make,
)
from eqsat_layout.extract.solver.problem import ConversionMatrix

Costs = npt.NDArray[np.float64]

COMBINATIONS = 20_000
"""Ways to supply one demand that are looked at; beyond them the answer is only a bound (see `Transitions.exact`)."""
EXACT_SUPPLIERS = 6
"""Repair costs look at all sets of this many made stores, and are looser beyond."""
_ROUNDING = 1e-9
"""Relative, of sums of conversions."""
_FEW = 64
"""Options that are not worth a look at which of them others beat."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """The options that no other is better than in cost and operands, by cost; not ``exact``: only some of them."""

    options: tuple[Option, ...]
    exact: bool


@dataclass(slots=True, eq=False)
class ReducedClass:
    """A reduced alias class: per store the nodes that make it, the conversions, and the bit regions of its operands.

    Operand alias class j owns ``regions[j] = (first bit, stores)`` of a way's bits. Demands are bit masks of stores;
    bit ``size`` (the store after the last) stands for "any one store", which the relaxation demands.
    """

    number: int
    ways: tuple[tuple[ReducedNode, ...], ...]
    convert: ConversionMatrix
    regions: tuple[tuple[int, int], ...]
    _transitions: dict[int, Transitions] = field(default_factory=dict)
    _repairs: dict[tuple[int, int, int, bool], float] = field(default_factory=dict)
    _conversions: dict[tuple[int, int], Costs] = field(default_factory=dict)
    _from_sets: dict[int, Costs] = field(default_factory=dict)
    _as_cheap: dict[tuple[int, int], bool] = field(default_factory=dict)
    placed: dict[tuple[int, ...], dict[int, tuple[Option, ...]]] = field(default_factory=dict)
    _table: NodeTable | None = None
    _worst: list[list[float]] | None = None
    _nearest: dict[int, list[float]] = field(default_factory=dict)
    _leaves: list[tuple[float, int]] | None = None
    _by_leaves: dict[int, float] = field(default_factory=dict)
    size: int = field(init=False)
    """How many stores the alias class has."""
    makeable: list[int] = field(init=False)
    """The stores that some node makes."""

    def __post_init__(self) -> None:
        self.size = len(self.ways)
        self.makeable = [s for s, ways in enumerate(self.ways) if ways]

    @property
    def cheapest(self) -> float:
        """The least cost of any node: paid by every solution that uses the tensor."""
        return min((way.cost for ways in self.ways for way in ways), default=math.inf)

    def transitions(self, demand: int) -> Transitions:
        """The ways to supply the stores of the (non-empty) demand; empty if there are none."""
        found = self._transitions.get(demand)
        if found is None:
            found = self._transitions[demand] = self._enumerate(demand)
        return found

    def repair(self, has: int, lacks: int, final: bool) -> float:
        """How much more the rest of the way can cost under demand ``has`` than under demand ``lacks``, at most.

        Only what concerns this alias class; may be negative. ``final``: nothing can demand more stores of it later.

        Proof. Take the best completion of a partial solution that demands L = ``lacks`` (plus, later, some set X), and
        let M be what it makes of this alias class. Made under H = ``has`` instead, the same nodes serve, so X is the
        same and only the conversions differ: S(M, H+X) - S(M, L+X), where S(M, R) is the sum over r in R of min over m
        in M of convert[m][r]. Stores in both cancel, and X cancels what it holds: at worst it holds all of L\\H (unless
        final) and nothing of H\\L. What is left is S(M, H\\L) - S(M, L\\H or nothing), and M can be any set of makeable
        stores that supplies L; the maximum over those is returned. No triangle inequality is used. If L is one store
        and nothing comes later, the best M is one store too. If L is empty M may be empty; then only nodes without
        operands can be added: `_from_nothing`, which is valid next to any M.
        """
        key = (has & ~lacks, lacks & ~has if final else 0, lacks, final)  # what is left of many a ``has``
        found = self._repairs.get(key)
        if found is None:
            found = self._repairs[key] = self._repair(*key)
        return found

    def covered(self, made: tuple[int, ...], demand: int) -> tuple[float, int]:
        """The conversions that supply the demand from the made stores (cost), and which of those are used (bits)."""
        total, used = 0.0, 0
        for s in _bits(demand):
            if s == self.size:  # any store will do
                continue
            best, by = math.inf, -1
            for m in made:
                if self.convert[m][s] < best:
                    best, by = self.convert[m][s], m
            if by < 0:
                return math.inf, 0
            total += best
            used |= 1 << by
        return total, used

    def _enumerate(self, demand: int) -> Transitions:
        """Sets of made stores in which each saves more than it costs, times the nodes of each."""
        any_only = demand == 1 << self.size
        needed = [] if any_only else list(_bits(demand & ~(1 << self.size)))
        makeable = self._not_beaten(needed)
        found = self._by_one_store(makeable, demand)
        width = sum(self.regions[-1]) if self.regions else 1
        budget = COMBINATIONS - len(makeable) - sum(len(self.ways[m]) for m in makeable)
        partners = self._partners(makeable, needed) if len(needed) > 1 else {}
        sets: list[tuple[int, ...]] = [(m,) for m in makeable]
        most = _FEW
        for _ in range(1, len(needed)):
            sets = [(*made, m) for made in sets for m in partners[made[-1]] if all(m in partners[o] for o in made[:-1])]
            budget -= len(sets)
            if budget < 0 and found:
                return Transitions(undominated(found), False)
            paying = {made: self._paying(made, needed) for made in sets}
            sets = [made for made, ways in paying.items() if all(ways)]
            for made in sets:
                conversions = self.covered(made, demand)[0]
                if conversions == math.inf:
                    continue
                budget -= math.prod(map(len, paying[made]))
                if budget < 0 and found:
                    return Transitions(undominated(found), False)
                found += self._of_same_operands(made, conversions)
                if len(found) > most:  # not for each set: it takes the square of their number
                    found = [*undominated(found)]
                    most = _FEW + 2 * len(found)
                found.extend(ways_to_make(made, paying[made], conversions, KnownOptions(found, width)))
        return Transitions(undominated(found), True)

    def _by_one_store(self, makeable: Sequence[int], demand: int) -> list[Option]:
        """For each demand of operands the best store and node that supply ``demand`` alone, if any do."""
        table = self._nodes()
        if not makeable or not table.bits:
            return []
        conversions = np.array([self.covered((m,), demand)[0] for m in makeable])
        costs = table.costs[makeable] + conversions[:, None]
        by = costs.argmin(axis=0)
        least = costs[by, np.arange(len(by))]
        found: list[Option] = []
        for place in np.flatnonzero(np.isfinite(least)).tolist():
            m = makeable[int(by[place])]
            found.append((float(least[place]), table.bits[place], ((m, int(table.indices[m, place])),)))
        return found

    def _nodes(self) -> NodeTable:
        if self._table is None:
            self._table = NodeTable.of(self.ways)
        return self._table

    def _of_same_operands(self, made: Sequence[int], conversions: float) -> list[Option]:
        """Ways to make all of these stores whose nodes demand the same of the operands."""
        table = self._nodes()
        costs = table.costs[[*made]].sum(axis=0) + conversions
        return [
            (float(costs[place]), table.bits[place], tuple((m, int(table.indices[m, place])) for m in made))
            for place in np.flatnonzero(np.isfinite(costs)).tolist()
        ]

    def _partners(self, makeable: Sequence[int], needed: Sequence[int]) -> dict[int, set[int]]:
        """For each store the later ones that may be made beside it: each of both may save more than it costs.

        A little more than that, as sums are rounded; :meth:`_paying` looks closer.
        """
        steps = np.array([[self.convert[m][s] for s in needed] for m in makeable])
        cheapest = np.array([min(way.cost for way in self.ways[m]) for m in makeable])
        both = np.minimum(steps[:, None], steps[None]).sum(axis=2)
        with np.errstate(invalid="ignore"):  # infinite less infinite
            saved = steps.sum(axis=1)[None] - both  # by the row's store, beside the column's
        pays = cheapest[:, None] < saved + _ROUNDING * np.where(np.isfinite(both), both, 0)
        may = (pays & pays.T) | ~np.isfinite(both)
        pairs = {m: np.flatnonzero(may[i, i + 1 :]).tolist() for i, m in enumerate(makeable)}
        return {m: {makeable[i + 1 + n] for n in pairs[m]} for i, m in enumerate(makeable)}

    def _not_beaten(self, needed: Sequence[int]) -> list[int]:
        """The makeable stores but for those in whose place another one does: made as cheaply, no dearer to convert."""
        kept: list[int] = []
        for m in sorted(self.makeable, key=lambda m: ([self.convert[m][s] for s in needed], m)):
            if not any(self._does_instead(other, m, needed) for other in kept):
                kept.append(m)
        return sorted(kept)

    def _does_instead(self, other: int, m: int, needed: Sequence[int]) -> bool:
        if any(self.convert[other][s] > self.convert[m][s] for s in needed):
            return False
        found = self._as_cheap.get((other, m))
        if found is None:
            found = self._as_cheap[other, m] = all(
                any(a.cost <= b.cost and a.bits & ~b.bits == 0 for a in self.ways[other]) for b in self.ways[m]
            )
        return found

    def _paying(self, made: tuple[int, ...], needed: Sequence[int]) -> list[list[ReducedNode]]:
        """For each store the nodes that cost less than it saves in conversions: the others would do as well without.

        What a store saves only falls with more stores beside it: where it has no such node, it has none in larger sets.
        """
        total = sum(min(self.convert[m][s] for m in made) for s in needed)
        if len(made) == 1 or total == math.inf:
            return [list(self.ways[m]) for m in made]
        found: list[list[ReducedNode]] = []
        for left_out in made:
            others = sum(min(self.convert[m][s] for m in made if m != left_out) for s in needed)
            found.append([way for way in self.ways[left_out] if way.cost < others - total])
        return found

    def _repair(self, missing: int, saved: int, lacks: int, final: bool) -> float:
        makeable = self.makeable
        most = 1 if final and lacks.bit_count() == 1 else len(makeable)
        if not missing and not saved:
            return 0.0
        if not lacks:
            return self._from_nothing(missing)
        if most > EXACT_SUPPLIERS:
            return min(self._loose(missing, lacks), self._from_nothing(missing))
        supplying = np.isfinite(self._converting(most, lacks))
        more = self._converting(most, missing)[supplying] - self._converting(most, saved)[supplying]
        worst = float(more.max()) if more.size else -math.inf
        return min(worst, self._from_nothing(missing)) if worst > 0 else worst

    def _converting(self, most: int, demand: int) -> Costs:
        """The costs of :meth:`covered` from each set of so many makeable stores and fewer. Demands differ in few of the
        parts that are asked for here."""
        found = self._conversions.get((most, demand))
        if found is None:
            found = self._conversions[most, demand] = self._added_up(most, demand)
        return found

    def _added_up(self, most: int, demand: int) -> Costs:
        nearest = self._from_sets.get(most)
        if nearest is None:
            sets = [[*made] for count in range(1, most + 1) for made in combinations(self.makeable, count)]
            steps = np.array(self.convert, dtype=float).reshape(self.size, self.size)
            nearest = np.array([steps[made].min(axis=0) for made in sets]).reshape(-1, self.size)
            self._from_sets[most] = nearest
        total = np.zeros(len(nearest))
        for s in _bits(demand & ~(1 << self.size)):
            total += nearest[:, s]  # one by one, as costs are added elsewhere
        return total

    def _loose(self, missing: int, lacks: int) -> float:
        """Each missing store on its own: some m supplies q of ``lacks``; take the best q and the worst such m."""
        nearest = self._nearest.get(lacks)
        if nearest is None:
            if self._worst is None:
                self._worst = self._worst_steps()
            rows = [self._worst[q] for q in _bits(lacks)]
            nearest = self._nearest[lacks] = [*map(min, zip(*rows, strict=True))]
        return sum(nearest[r] for r in _bits(missing) if r != self.size)

    def _worst_steps(self) -> list[list[float]]:
        """The dearest that each store (columns) can be to reach from what was made so that each (rows) is there."""
        steps = np.array([self.convert[m] for m in self.makeable]).reshape(-1, self.size)
        from_which = [*(np.isfinite(steps[:, q]) for q in range(self.size)), np.ones(len(steps), dtype=bool)]
        return [
            [*map(float, steps[makers].max(axis=0))] if makers.any() else [math.inf] * self.size
            for makers in from_which
        ]

    def _from_nothing(self, missing: int) -> float:
        found = self._by_leaves.get(missing)
        if found is None:
            found = self._by_leaves[missing] = self._by_a_leaf(missing)
        return found

    def _by_a_leaf(self, missing: int) -> float:
        best = math.inf if missing else 0.0
        if self._leaves is None:
            leaves = [(min((w.cost for w in self.ways[m] if not w.bits), default=math.inf), m) for m in self.makeable]
            self._leaves = [leaf for leaf in leaves if leaf[0] < math.inf]
        for leaf, m in self._leaves:
            if leaf < best:
                best = min(best, leaf + self.covered((m,), missing)[0])
        return best


@lru_cache(maxsize=1 << 16)
def _bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
