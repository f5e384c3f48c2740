"""Stores of one alias class that are the same bytes in memory, taken for one.

In: a `Problem`. Out: a smaller one with the same costs, and the way back from its solutions. A row-major matrix, the
same with an axis of extent 1, and the same with an axis split in two differ in nothing that a conversion would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eqsat_layout.extract.solver.problem import AliasClass, ENode, Problem, Solution, StoreId, same_bytes

ConversionMatrix = tuple[tuple[float, ...], ...]


@dataclass(eq=False)
class Merged:
    """``problem``: with one store for each group of stores that are the same bytes."""

    original: Problem
    problem: Problem = field(init=False)
    _groups: list[tuple[int, ...]] = field(default_factory=list)
    """Per alias class, for each store the number of its group."""
    _ways: list[list[list[StoreId]]] = field(default_factory=list)
    """Per alias class and group, for each of its nodes the store of the original problem and the index there."""
    _matrices: dict[int, ConversionMatrix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known: dict[int, tuple[int, ...]] = {}  # equal matrices are one object
        for alias_class in self.original.classes:
            groups = known.get(id(alias_class.convert))
            if groups is None:
                leaders = same_bytes(alias_class.convert)
                number = {leader: i for i, leader in enumerate(dict.fromkeys(leaders))}
                groups = known[id(alias_class.convert)] = tuple(number[leader] for leader in leaders)
            self._groups.append(groups)
        self.problem = Problem(
            tuple(self._merged(f, alias_class) for f, alias_class in enumerate(self.original.classes)),
            tuple(dict.fromkeys(map(self._store, self.original.goals))),
        )

    def restore(self, found: Solution) -> Solution:
        """The solution of the original problem. Of nodes that differ in views only it takes the first."""
        made: dict[StoreId, int] = {}
        maker: dict[StoreId, int] = {}
        for (f, group), index in found.made.items():
            nodes, ways = self.problem.classes[f].nodes[group], self._ways[f][group]
            s, first = min(way for node, way in zip(nodes, ways, strict=True) if node == nodes[index])
            made[f, s] = first
            maker[f, group] = s
        source: dict[StoreId, int] = {}
        wanted = [*self.original.goals]
        for (f, s), index in made.items():
            wanted += self.original.classes[f].nodes[s][index].children
        leader: dict[StoreId, int] = {}
        for store in sorted(set(wanted)):
            f, group = self._store(store)
            supplier = found.source[f, group]
            # of what one copy serves the first is the copy, and the others are views of it
            source[store] = maker[f, group] if supplier == group else leader.get((f, group), maker[f, supplier])
            leader.setdefault((f, group), store[1])
        return replace(found, made=made, source=source)

    def _store(self, store: StoreId) -> StoreId:
        return store[0], self._groups[store[0]][store[1]]

    def _merged(self, f: int, alias_class: AliasClass) -> AliasClass:
        groups = self._groups[f]
        nodes: list[list[ENode]] = [[] for _ in range(max(groups, default=-1) + 1)]
        ways: list[list[StoreId]] = [[] for _ in nodes]
        self._ways.append(ways)
        for s, own in enumerate(alias_class.nodes):
            for index, node in enumerate(own):
                children = tuple(map(self._store, node.children))
                nodes[groups[s]].append(node if children == node.children else ENode(node.cost, children))
                ways[groups[s]].append((s, index))
        return AliasClass(tuple(map(tuple, nodes)), self._matrix(alias_class.convert, groups))

    def _matrix(self, convert: ConversionMatrix, groups: Sequence[int]) -> ConversionMatrix:
        """The rows and columns of one store of each group; one object for one object."""
        found = self._matrices.get(id(convert))
        if found is None:
            first = list({group: s for s, group in reversed([*enumerate(groups)])}.values())[::-1]
            found = convert if len(first) == len(convert) else tuple(tuple(convert[s][t] for t in first) for s in first)
            self._matrices[id(convert)] = found
        return found
