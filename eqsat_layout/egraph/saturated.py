"""What saturation leaves of one region.

In: made by :mod:`eqsat_layout.egraph.saturate`. Out: :class:`Saturated`, what extraction reads, and how it came about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from eqsat_layout.egraph.derivations import Derivations
from eqsat_layout.egraph.engine import Engine, LogEntry
from eqsat_layout.egraph.flow_answers import RefusedFormat
from eqsat_layout.egraph.limits import Budget, Stop, rehearsed
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.recording import recorded
from eqsat_layout.egraph.rule_notes import Experience
from eqsat_layout.egraph.rules import Command
from eqsat_layout.egraph.tables import Tables
from eqsat_layout.graph.graph import Graph, TensorType
from eqsat_layout.maps import Memory

_T = TypeVar("_T")

OpTerm = tuple[Literal["Op", "Get"], tuple[Any, ...]]
"""The signature and operands of an op; or the number of a result, and the tuple. Operands are e-classes."""


@dataclass
class Saturated:
    """The saturated e-graph of one region, as tables. E-classes are opaque handles.

    ``handle_of_ref``: by the numbers of the program's bindings. ``constants``: with their names. ``terms``: what made
    those that only rules made, each behind its operands. ``history``: how it came about, under the rules ``commands``.
    ``experience``: what became of those that are the user's. ``budget``: what a phase may take, with the same rules.
    ``memories``: those of the target, by scope.
    """

    graph: Graph
    names: Names
    tables: Tables
    types: dict[Any, TensorType | None]
    handle_of_ref: dict[int, Any]
    constants: list[tuple[Any, str]]
    terms: dict[Any, OpTerm]
    rounds: int
    e_nodes: int
    e_classes: int
    notes: list[str]
    refusals: list[RefusedFormat]
    stops: list[Stop]
    history: Sequence[LogEntry]
    commands: Sequence[Command]
    experience: Experience
    budget: Budget
    memories: Mapping[str, Memory]

    @property
    def handle_of_node(self) -> list[Any]:
        """The e-classes of the nodes of the graph."""
        return [self.handle_of_ref[i] for i in range(len(self.graph.nodes))]

    def derived(self, question: Callable[[Derivations], _T]) -> _T | Stop:
        """What ``question`` makes of the rules behind everything.

        All that was done is done again, by rules that write down what they do. Rules of the user's are held to the
        limits of a phase: where two terms meet in every way, all of these ways are written down.
        """
        recording = recorded(self.commands)
        engine = Engine(recording.commands)
        found: list[_T | Stop] = []

        def ask(budget: Budget | None = None) -> None:
            hit = engine.repeat(self.history, budget)
            found.append(Stop("reasons", hit) if hit else question(Derivations(recording, engine.tables())))

        if self.budget.is_guarded:
            self.budget.start(0)
            hit, answer = rehearsed(ask, lambda: found[0], self.budget)
            if hit is not None:
                return Stop("reasons", hit)
            if answer is not None:
                return answer  # type: ignore[no-any-return]
            self.budget.start(0)
        ask(self.budget if self.budget.is_guarded else None)
        return found[0]
