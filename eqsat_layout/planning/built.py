"""What the build makes one kernel of in a plan, and what the plan costs so.

In: planned regions, and how the module says them, with marks. Out: kernels, as the target joins them, by the steps of
the plan. Planning adds up the costs of ops, each as a part of one of TVM's groups; a target that makes one kernel of
several groups says here what that saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.baseline import run_cost
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Graph, Signature
from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.marks import kernels_of, marked
from eqsat_layout.system.tvm_lock import one_at_a_time
from eqsat_layout.targets.protocol import Target

Marked = tuple[Any, Mapping[str, tuple[Graph, int]]]
"""A module with marks, and what these stand for: a graph, and a store of the steps that are taken for it, or a node."""


@dataclass(frozen=True)
class BuiltKernel:
    """The function that is called, what it carries out (the number of a region, and a store of its steps or a node of
    its graph), what the plan counts for that, in seconds, and how many of these one kernel saves."""

    name: str
    parts: tuple[tuple[int, int], ...]
    cost: float
    saved: float


@dataclass(frozen=True)
class Built:
    """The kernels of planned ``regions``; the target is asked when they are asked for."""

    regions: Sequence[Region]
    signatures: Mapping[str, Signature]
    costs: CostModel
    target: Target
    module: Callable[[], Marked]

    @cached_property
    @one_at_a_time
    def _joined(self) -> tuple[Any, Any, Mapping[str, Any]]:
        """The module as the target joins it, as it was before, with marks, and what these stand for."""
        notes = Notes()
        emitted, parts = self.module()
        plain, marks = marked(fold_constants(legalize(emitted), notes))
        known = {mark: parts[str(var.name)] for mark, var in marks.items() if str(var.name) in parts}
        return self.target.kernels(plain, notes), plain, known

    @cached_property
    @one_at_a_time
    def slow_kernels(self) -> Sequence[str]:
        """What the build says of those that no fast code is known for."""
        return self.target.slow_kernels(self._joined[0])

    @cached_property
    @one_at_a_time
    def kernels(self) -> tuple[BuiltKernel, ...]:
        """In the order in which they run."""
        joined, plain, known = self._joined
        numbers = {id(region.graph): number for number, region in enumerate(self.regions)}
        costs = [r.reasons.costs() if r.is_taken else self.written_costs(r) for r in self.regions]
        found: list[BuiltKernel] = []
        for kernel in kernels_of(joined, plain):
            own = tuple(dict.fromkeys((numbers[id(known[m][0])], known[m][1]) for m in kernel.marks if m in known))
            cost = sum(costs[number].get(part, 0.0) for number, part in own)
            found.append(BuiltKernel(kernel.callee, own, cost, cost * kernel.saved))
        return tuple(found)

    @property
    def cost(self) -> float:
        """The cost of all regions as they are built."""
        return sum(region.cost for region in self.regions) - sum(kernel.saved for kernel in self.kernels)

    def last_parts(self, region: Region) -> Mapping[int, int]:
        """For each store of a region's steps, the last store of the same kernel."""
        number = next(i for i, one in enumerate(self.regions) if one is region)
        own = [[store for one, store in kernel.parts if one == number] for kernel in self.kernels]
        return {store: stores[-1] for stores in own for store in stores}

    def written_costs(self, region: Region) -> dict[int, float]:
        """The costs of a region's ops as they are written, by their nodes."""
        return {
            i: run_cost(self.signatures[n.signature], self.costs, region.input_fusion.fused(i, n.inputs))
            for i, n in enumerate(region.graph.nodes)
            if n.kind == "op" and not self.signatures[n.signature].parts
        }
