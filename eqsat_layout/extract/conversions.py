"""What it costs to go from one store of an alias class to another, and by which steps.

In: the stores of an alias class, each a list of (tensor, format) pairs that share a buffer, and a cost model. Out:
matrices of costs for the solver, and the way back from an entry to its steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.solver.problem import ConversionMatrix
from eqsat_layout.extract.tuple_parts import TupleParts, is_part_need
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Format

Spec = tuple[int, str]
"""A tensor's number and a format name."""


class Conversions:
    """Conversion matrices of alias classes, each distinct one built once."""

    def __init__(
        self, formats: Mapping[str, Format], types: list[TensorType | None], costs: CostModel, parts: TupleParts
    ):
        self._formats, self._types, self._costs, self._parts = formats, types, costs, parts
        self._matrices: dict[Any, ConversionMatrix] = {}
        self._pairs: dict[tuple[TensorType, str, str], float] = {}

    def matrix(self, stores: list[list[Spec]]) -> ConversionMatrix:
        if all(len(specs) == 1 for specs in stores) and len({specs[0][0] for specs in stores}) == 1:
            key: Any = (
                self._types_of(stores[0][0][0]),
                tuple(specs[0][1] for specs in stores),
            )  # no views: the usual case
        else:
            numbering: dict[int, int] = {}
            key = tuple(
                tuple((numbering.setdefault(t, len(numbering)), self._types_of(t), f) for t, f in specs)
                for specs in stores
            )
        matrix = self._matrices.get(key)
        if matrix is None:
            matrix = self._matrices[key] = tuple(tuple(self._from(stores, i)[0]) for i in range(len(stores)))
        return matrix

    def _types_of(self, tensor: int) -> tuple[TensorType | None, ...]:
        """The type of a tensor; for a tuple those of the results that are read."""
        return (self._types[tensor], *(self._types[part] for part in self._parts.of(tensor)))

    def step_before(self, stores: list[list[Spec]], source: int, target: int) -> int:
        """The store before the last step of the conversion from ``source`` to ``target``."""
        return self._from(stores, source)[1][target]

    def common(self, source: list[Spec], target: list[Spec]) -> tuple[int, str, str]:
        """The tensor that one step goes by, and its formats before and after."""
        targets = dict(target)
        _, tensor, before = min((self._pair(t, f, targets[t]), t, f) for t, f in source if t in targets)
        return tensor, before, targets[tensor]

    def _from(self, stores: list[list[Spec]], source: int) -> tuple[list[float], list[int]]:
        """Costs of the conversions from one store, and for each the store before its last step.

        One step does where the two stores hold a tensor in common. Stores of different views of one tensor may not:
        where views cut through each other's digits, the way leads over what both can say.
        """
        costs = [self._cost(stores[source], target) for target in stores]
        costs[source] = 0.0
        before = [source] * len(stores)
        if math.inf not in costs:
            return costs, before
        steps = [1] * len(stores)
        done: set[int] = set()
        while len(done) < len(stores):
            nearest = min((i for i in range(len(stores)) if i not in done), key=lambda i: (costs[i], steps[i], i))
            done.add(nearest)
            for i in range(len(stores)) if costs[nearest] < math.inf and nearest != source else ():
                cost = costs[nearest] + self._cost(stores[nearest], stores[i]) if i not in done else math.inf
                if cost < math.inf and (cost, steps[nearest] + 1) < (costs[i], steps[i]):
                    costs[i], steps[i], before[i] = cost, steps[nearest] + 1, nearest
        return costs, before

    def _cost(self, source: list[Spec], target: list[Spec]) -> float:
        targets = dict(target)
        return min((self._pair(t, f, targets[t]) for t, f in source if t in targets), default=math.inf)

    def _pair(self, tensor: int, before: str, after: str) -> float:
        ty, source, target = self._types[tensor], self._formats.get(before), self._formats.get(after)
        if is_part_need(after):
            part = self._parts.conversion(tensor, before, after)
            return math.inf if part is None else 0.0 if part[1] == part[2] else self._pair(*part)
        if ty is None or source is None or target is None:
            return math.inf
        key = (ty, before, after)
        cost = self._pairs.get(key)
        if cost is None:
            cost = self._pairs[key] = self._convert_cost(ty, source, target)
        return cost

    def _convert_cost(self, ty: TensorType, source: Format, target: Format) -> float:
        if source.serves_as(target):
            return 0.0
        if source.index_map.inverse() is None:
            return math.inf
        return max(0.0, float(self._costs.convert(ty, source, target)))


def unconvertible(stores: int) -> ConversionMatrix:
    """The matrix of stores that can't be made of each other."""
    return tuple(tuple(0.0 if i == j else math.inf for j in range(stores)) for i in range(stores))
