"""A region of a module with its plan, before it is emitted or told to anybody.

In: what the search found. Out: :class:`Region`, which emission, validation and the summary read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.extract.baseline import Rewrite
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.reasons import Reasons
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solver.problem import Solution
from eqsat_layout.graph.graph import Graph
from eqsat_layout.graph.steps import Steps

IMPROVEMENT: Final = 1e-9
"""A plan is taken if it is cheaper by more than this share."""


@dataclass(frozen=True)
class Region:
    """One region, planned. ``input_fusion``: what becomes one kernel of the input as it was written.

    ``is_joined``: the plan is not the cheapest of ops one by one, but cheaper as the target joins them.
    """

    graph: Graph
    saturated: Saturated
    selection: Selection
    solution: Solution
    decoder: Decoder
    steps: Steps
    input_cost: float
    input_rewrites: list[Rewrite]
    input_fusion: Fusion
    annotated: bool
    is_joined: bool = False

    @property
    def is_taken(self) -> bool:
        """The plan replaces the input: it is cheaper, or annotations ask for layouts that the input does not have."""
        return self.annotated or self.is_joined or self.solution.cost < self.input_cost * (1 - IMPROVEMENT)

    @cached_property
    def reasons(self) -> Reasons:
        """Why it is planned so."""
        return Reasons(self.selection, self.solution, self.decoder, self.steps)

    @cached_property
    def bindings(self) -> dict[int, int]:
        """The binding of the program whose value each step makes, by its store; none for what only rules made."""
        first, stores = self.selection.tensors.first_node, self.selection.stores
        found: dict[int, int] = {}
        for store, (alias_class, number, _) in self.decoder.places.items():
            own = [first[tensor] for tensor, _ in stores[alias_class][number] if first[tensor] >= 0]
            if own:
                found[store] = min(own)
        return found

    @cached_property
    def owners(self) -> dict[int, int]:
        """The binding that each step is done for, by its store: its own, or that of the first step that uses it.

        -1 for what nothing uses.
        """
        found: dict[int, int] = {}
        for step in reversed(self.steps.steps):
            found[step.store] = self.bindings.get(step.store, found.get(step.store, -1))
            found.update(dict.fromkeys(step.sources, found[step.store]))
        return found

    @property
    def cost(self) -> float:
        """The cost of what is taken."""
        return self.solution.cost if self.is_taken else self.input_cost
