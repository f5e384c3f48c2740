"""A selection problem made small without losing its optimum.

In: a `Problem`. Out: `Reduced`: the alias classes that can be needed, in components, operands before users. Nodes that
can't be built or are beaten are gone, free operands are stripped, equal alias classes share a `ReducedClass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eqsat_layout.extract.solver.components import components
from eqsat_layout.extract.solver.minimal import minimal
from eqsat_layout.extract.solver.options import ReducedNode
from eqsat_layout.extract.solver.problem import AliasClass, ConversionMatrix, ExtractionError, Problem
from eqsat_layout.extract.solver.reduced_class import ReducedClass

RawENode = tuple[float, tuple[tuple[int, int], ...], int]
"""Cost, operands as (local alias class number, store), index in the problem's store. Number 0 is the class itself."""


@dataclass(slots=True, eq=False)
class Raw:
    """The shape of an alias class before reduction, shared by equal ones."""

    number: int
    nodes: tuple[tuple[RawENode, ...], ...]
    convert: ConversionMatrix


@dataclass(frozen=True, slots=True)
class Context:
    """What an alias class sees of an operand's: how many stores, which are available, which cost nothing (bits)."""

    size: int
    available: int
    free: int
    inside: bool


@dataclass(slots=True, eq=False)
class Resolved:
    """A reduced class with what its users must know: available and free stores, and which local operands are left."""

    reduced_class: ReducedClass
    available: int
    free: int
    kept: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Reduced:
    """The reduced problem. ``components``: alias classes, operands first; more than one where they form a cycle."""

    problem: Problem
    components: list[tuple[int, ...]] = field(default_factory=list)
    of_class: dict[int, ReducedClass] = field(default_factory=dict)
    kids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    goals: dict[int, int] = field(default_factory=dict)
    distinct_classes: int = 0

    def lower_bound(self) -> float:
        """The cheapest nodes of the alias classes that no solution can do without."""
        must = dict.fromkeys(self.goals)
        work = list(must)
        while work:
            f = work.pop()
            reduced_class = self.of_class[f]
            common = -1
            for ways in reduced_class.ways:
                for way in ways:
                    common &= _operand_classes(way.bits, reduced_class.regions)
            for j, kid in enumerate(self.kids[f]):
                if common >> j & 1 and kid not in must:
                    must[kid] = None
                    work.append(kid)
        return math.fsum(self.of_class[f].cheapest for f in must)


def reduce(problem: Problem) -> Reduced:
    """Reduce a problem; raises ExtractionError if it is malformed or a goal can't be made."""
    return _Reducer(problem).run()


def _operand_classes(bits: int, regions: Sequence[tuple[int, int]]) -> int:
    return sum(1 << j for j, (first, size) in enumerate(regions) if bits >> first & ((1 << size) - 1))


class _Reducer:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.raws: dict[tuple[float, ...], Raw] = {}
        self.matrices: dict[ConversionMatrix, int] = {}
        self.matrix_ids: dict[int, int] = {}
        self.memo: dict[tuple[object, ...], Resolved] = {}
        self.reduced_classes: dict[tuple[object, ...], ReducedClass] = {}
        self.raw: dict[int, Raw] = {}
        self.raw_kids: dict[int, tuple[int, ...]] = {}
        self.resolved: dict[int, Resolved] = {}

    def run(self) -> Reduced:
        out = Reduced(self.problem)
        roots = list(dict.fromkeys(f for f, _ in self.problem.goals))
        ordered: list[tuple[int, ...]] = []
        for component in components(roots, self._operands):
            for part in [component] if len(component) == 1 else self._break_cycle(component):
                self._resolve_component(part)
                ordered.append(part)
        for f, s in self.problem.goals:
            if not self.resolved[f].available >> s & 1:
                raise ExtractionError(f"goal {(f, s)} can't be made from anything")
            out.free.setdefault(f, self.resolved[f].free)
            if not self.resolved[f].free >> s & 1:
                out.goals[f] = out.goals.get(f, 0) | 1 << s
        self._keep_needed(out, ordered)
        return out

    def _keep_needed(self, out: Reduced, ordered: Iterable[tuple[int, ...]]) -> None:
        needed = set(out.goals)
        components_: list[tuple[int, ...]] = []
        for f, resolved in self.resolved.items():
            out.of_class[f], out.free[f] = resolved.reduced_class, resolved.free
            out.kids[f] = tuple(self.raw_kids[f][i] for i in resolved.kept)
        work = list(needed)
        while work:
            for kid in out.kids[work.pop()]:
                if kid not in needed:
                    needed.add(kid)
                    work.append(kid)
        for component in ordered:
            part = tuple(f for f in component if f in needed)
            if part:
                components_.append(part)
        out.components = components_
        out.distinct_classes = len({out.of_class[f].number for f in needed})

    # -- alias classes to shared shapes

    def _operands(self, f: int) -> tuple[int, ...]:
        """The operand alias classes of f (itself not among them); its shape is interned on the way."""
        kids = self.raw_kids.get(f)
        if kids is not None:
            return kids
        alias_class = self.problem.classes[f]
        local = {f: 0}
        key: list[float] = [self._matrix(alias_class)]
        for ways in alias_class.nodes:
            key.append(-2)
            for node in ways:
                key.append(-1)
                key.append(node.cost)
                for g, s in node.children:
                    key.append(local.setdefault(g, len(local)))
                    key.append(s)
        shape = tuple(key)
        raw = self.raws.get(shape)
        if raw is None:
            raw = self.raws[shape] = self._make_raw(alias_class, local)
        self.raw[f] = raw
        kids = self.raw_kids[f] = tuple(local)[1:]
        return kids

    def _matrix(self, alias_class: AliasClass) -> int:
        number = self.matrix_ids.get(id(alias_class.convert))
        if number is None:
            number = self.matrices.setdefault(alias_class.convert, len(self.matrices))
            self.matrix_ids[id(alias_class.convert)] = (
                number  # the problem keeps the matrix alive, so the id stays its own
            )
        return number

    def _make_raw(self, alias_class: AliasClass, local: dict[int, int]) -> Raw:
        stores: list[tuple[RawENode, ...]] = []
        for ways in alias_class.nodes:
            nodes: list[RawENode] = []
            for index, node in enumerate(ways):
                children = tuple(dict.fromkeys((local[g], s) for g, s in node.children))
                if node.cost < math.inf and not any(g == 0 for g, _ in children):
                    nodes.append((node.cost, children, index))
            stores.append(tuple(nodes))
        return Raw(len(self.raws), tuple(stores), alias_class.convert)

    # -- shapes to reduced classes, given what is known of the operands

    def _resolve_component(self, component: tuple[int, ...]) -> None:
        inside = set(component) if len(component) > 1 else set()
        available = self._available(component) if inside else {}
        for f in component:
            kids = self.raw_kids[f]
            contexts = []
            for g in kids:
                size = len(self.problem.classes[g].nodes)
                if g in inside:
                    contexts.append((size, available[g], 0, True))
                else:
                    other = self.resolved.get(g)
                    # an operand that is not resolved yet belongs to a node that `_break_cycle` has dropped
                    contexts.append((size, other.available, other.free, False) if other else (size, 0, 0, False))
            key = (self.raw[f].number, tuple(contexts))
            found = self.memo.get(key)
            if found is None:
                found = self.memo[key] = self._resolve(f, [Context(*c) for c in contexts])
            self.resolved[f] = found

    def _resolve(self, f: int, contexts: Sequence[Context]) -> Resolved:
        raw = self.raw[f]
        stores: list[list[tuple[float, tuple[tuple[int, int], ...], int]]] = []
        for ways in raw.nodes:
            nodes = []
            for cost, children, index in ways:
                if all(contexts[g - 1].available >> c & 1 for g, c in children):
                    nodes.append((cost, tuple((g, c) for g, c in children if not contexts[g - 1].free >> c & 1), index))
            stores.append(nodes)
        kept = tuple(sorted({g - 1 for nodes in stores for _, children, _ in nodes for g, _ in children}))
        regions: list[tuple[int, int]] = []
        first = 0
        for i in kept:
            regions.append((first, contexts[i].size))
            first += contexts[i].size
        start = {i: region[0] for i, region in zip(kept, regions, strict=True)}
        reduced = tuple(
            _undominated([ReducedNode(cost, _mask(children, start), index) for cost, children, index in nodes])
            for nodes in stores
        )
        reduced_class = self._reduced_class(reduced, raw.convert, tuple(regions))
        made = [m for m, ways in enumerate(reduced) if ways]
        free_makers = [m for m in made if reduced[m][0].cost == 0 and not reduced[m][0].bits]
        available = sum(1 << s for s in range(len(stores)) if any(raw.convert[m][s] < math.inf for m in made))
        free = sum(1 << s for s in range(len(stores)) if any(raw.convert[m][s] == 0 for m in free_makers))
        return Resolved(reduced_class, available, free, kept)

    def _reduced_class(
        self, ways: tuple[tuple[ReducedNode, ...], ...], convert: ConversionMatrix, regions: tuple[tuple[int, int], ...]
    ) -> ReducedClass:
        shape = tuple(tuple((w.cost, w.bits, w.index) for w in store) for store in ways)
        key = (shape, self.matrices[convert], regions)
        found = self.reduced_classes.get(key)
        if found is None:
            found = self.reduced_classes[key] = ReducedClass(len(self.reduced_classes), ways, convert, regions)
        return found

    # -- cycles

    def _available(self, component: Sequence[int]) -> dict[int, int]:
        """Which stores of a cycle's alias classes can be made at all (bits); a store may not support itself."""
        found = dict.fromkeys(component, 0)
        users: dict[int, list[int]] = {f: [] for f in component}
        for f in component:
            for g in self.raw_kids[f]:
                if g in users:
                    users[g].append(f)
        work = list(reversed(component))
        while work:
            f = work.pop()
            raw, kids = self.raw[f], self.raw_kids[f]
            known = [found[g] if g in found else self._known(g) for g in kids]
            made = [
                m
                for m, ways in enumerate(raw.nodes)
                if any(all(known[g - 1] >> c & 1 for g, c in children) for _, children, _ in ways)
            ]
            mask = sum(1 << s for s in range(len(raw.nodes)) if any(raw.convert[m][s] < math.inf for m in made))
            if mask != found[f]:
                found[f] = mask
                work.extend(u for u in users[f] if u not in work)
        return found

    def _known(self, g: int) -> int:
        other = self.resolved.get(g)
        return other.available if other else 0

    def _break_cycle(self, component: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Drop the nodes of a cycle that can't be part of any solution; what is left, as components in order."""
        while True:
            available = self._available(component)
            must = self._must(component)
            dropped = False
            for f in component:
                keep = [tuple(n for n in ways if self._usable(f, n, available, must)) for ways in self.raw[f].nodes]
                if any(len(k) != len(ways) for k, ways in zip(keep, self.raw[f].nodes, strict=True)):
                    self._replace(f, tuple(keep))
                    dropped = True
            if not dropped:
                break
        members = set(component)
        return components(component, lambda f: [g for g in self._live_operands(f) if g in members])

    def _replace(self, f: int, nodes: tuple[tuple[RawENode, ...], ...]) -> None:
        old = self.raw[f]
        key = (-3.0, float(old.number), *(float(i) for ways in nodes for i in (-2, *(n[2] for n in ways))))
        found = self.raws.get(key)
        if found is None:
            found = self.raws[key] = Raw(len(self.raws), nodes, old.convert)
        self.raw[f] = found

    def _live_operands(self, f: int) -> list[int]:
        kids = self.raw_kids[f]
        return [kids[g] for g in sorted({g - 1 for ways in self.raw[f].nodes for n in ways for g, _ in n[1]})]

    def _usable(self, f: int, node: RawENode, available: dict[int, int], must: dict[int, frozenset[int]]) -> bool:
        kids = self.raw_kids[f]
        for g, c in node[1]:
            kid = kids[g - 1]
            if kid in available:
                if not available[kid] >> c & 1 or f in must[kid]:
                    return False
            elif not self._known(kid) >> c & 1:
                return False
        return True

    def _must(self, component: Sequence[int]) -> dict[int, frozenset[int]]:
        """For each alias class those of the cycle that every way to make any store of it needs, itself among them.

        Greatest fixed point: begin with all, intersect over the nodes. A node of f that needs an alias class which
        needs f would make f out of itself, so it is in no solution.
        """
        full = frozenset(component)
        must = dict.fromkeys(component, full)
        changed = True
        while changed:
            changed = False
            for f in component:
                kids = self.raw_kids[f]
                needs = [
                    frozenset().union(*(must[kids[g - 1]] for g, _ in children if kids[g - 1] in full))
                    for ways in self.raw[f].nodes
                    for _, children, _ in ways
                ]
                common = full.intersection(*needs) | {f}
                if common != must[f]:
                    must[f], changed = common, True
        return must


def _undominated(ways: list[ReducedNode]) -> tuple[ReducedNode, ...]:
    ordered = sorted(ways, key=lambda w: (w.cost, w.bits.bit_count(), w.bits, w.index))
    return tuple(ordered[place] for place in minimal([way.bits for way in ordered]))


def _mask(children: Iterable[tuple[int, int]], start: dict[int, int]) -> int:
    bits = 0
    for g, c in children:
        bits |= 1 << (start[g - 1] + c)
    return bits
