"""A region of a module with its plan, before it is emitted or told to anybody.

In: what the search found. Out: :class:`Region`, which emission, validation and the summary read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.egraph.saturate import Saturated
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
    """One region, planned. ``input_fusion``: what becomes one kernel of the input as it was written."""

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

    @property
    def is_taken(self) -> bool:
        """The plan replaces the input: it is cheaper, or annotations ask for layouts that the input does not have."""
        return self.annotated or self.solution.cost < self.input_cost * (1 - IMPROVEMENT)

    @cached_property
    def reasons(self) -> Reasons:
        """Why it is planned so."""
        return Reasons(self.selection, self.solution, self.decoder, self.steps)

    @property
    def cost(self) -> float:
        """Of what is taken."""
        return self.solution.cost if self.is_taken else self.input_cost
