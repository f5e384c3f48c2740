"""Stores of one alias class that are the same bytes in memory, taken for one.

In: a `Problem`. Out: a smaller one with the same costs, and the way back from its solutions. A row-major matrix, the
same with an axis of extent 1, and the same with an axis split in two differ in nothing that a conversion would change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from eqsat_layout.extract.solver.problem import (
    AliasClass,
    ConversionMatrix,
    ENode,
    Problem,
    Solution,
    StoreId,
    same_bytes,
)


@dataclass(eq=False)
class Merged:
    """``problem``: with one store for each group of stores that are the same bytes."""

    original: Problem
    problem: Problem = field(init=False)
    _groups: list[tuple[int, ...]] = field(default_factory=list)
    """Per alias class, for each store the number of its group."""
    _ways: list[list[list[StoreId]]] = field(default_factory=list)
    """Per alias class and group, for each of its nodes the store of the original problem and the index there."""

    def __post_init__(self) -> None:
        known: dict[int, tuple[tuple[int, ...], ConversionMatrix]] = {}  # equal matrices are one object, and stay one
        matrices: list[ConversionMatrix] = []
        for alias_class in self.original.classes:
            found = known.get(id(alias_class.convert))
            if found is None:
                found = known[id(alias_class.convert)] = _grouped(alias_class.convert)
            self._groups.append(found[0])
            matrices.append(found[1])
        self.problem = Problem(
            tuple(map(self._merged, range(len(matrices)), matrices)),
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

    def _merged(self, f: int, convert: ConversionMatrix) -> AliasClass:
        nodes: list[list[ENode]] = [[] for _ in convert]
        ways: list[list[StoreId]] = [[] for _ in convert]
        self._ways.append(ways)
        for s, (group, own) in enumerate(zip(self._groups[f], self.original.classes[f].nodes, strict=True)):
            for index, node in enumerate(own):
                children = tuple(map(self._store, node.children))
                nodes[group].append(node if children == node.children else ENode(node.cost, children))
                ways[group].append((s, index))
        return AliasClass(tuple(map(tuple, nodes)), convert)


def _grouped(convert: ConversionMatrix) -> tuple[tuple[int, ...], ConversionMatrix]:
    """The number of the group of each store, and the rows and columns of the first of each."""
    leaders = same_bytes(convert)
    number = {leader: i for i, leader in enumerate(dict.fromkeys(leaders))}
    if len(number) < len(convert):
        convert = tuple(tuple(convert[s][t] for t in number) for s in number)
    return tuple(number[leader] for leader in leaders), convert
