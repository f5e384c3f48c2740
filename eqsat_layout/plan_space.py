"""All plans of a program, saturated once and extracted as often as costs change. Room: beside the pipeline.

In: a module, a target and options as ``compile`` takes them. Out: the best plan under any cost model, as steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.checks import check_limits, check_rules, check_time_limit
from eqsat_layout.egraph.rules import read_commands, rule_files
from eqsat_layout.egraph.saturate import Saturated, is_own, saturate
from eqsat_layout.egraph.user_flows import flow_callbacks, user_flows
from eqsat_layout.errors import EqsatError
from eqsat_layout.extract.checked_cost import checked_cost_model
from eqsat_layout.extract.cost import CostModel
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.frontier import solve
from eqsat_layout.extract.problem import ExtractionError, Solution, cost_of
from eqsat_layout.extract.selection import Selection
from eqsat_layout.graph.graph import Graph
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.steps import Steps
from eqsat_layout.pipeline import Options, check_module, collector_paused, offers_for
from eqsat_layout.targets import default_costs, prepare


@dataclass(frozen=True)
class Choice:
    """The best plan of one region under some costs."""

    selection: Selection
    solution: Solution
    steps: Steps


class PlanSpace:
    """``times``: how often one run of the program runs an op, by the key of its signature; ops of alternatives too.

    ``own_costs`` is the user's cost model, if there is one; ``notes`` say what could not be planned.
    """

    def __init__(self, mod: Any, target: Any, options: Options):
        """``target`` is a checked one. Raises what planning raises for a malformed module or option."""
        unknown = sorted(set(options) - Options.__annotations__.keys())
        if unknown:
            raise TypeError(f"unexpected option {unknown[0]!r}; there are {', '.join(Options.__annotations__)}")
        check_module(mod)
        self._limits, self._time_limit = (
            check_limits(options.get("limits")),
            check_time_limit(options.get("time_limit")),
        )
        own_model = options.get("cost_model")
        self.own_costs: CostModel | None = None if own_model is None else checked_cost_model(own_model)
        commands = [c for path in rule_files(check_rules(options.get("rules"))) for c in read_commands(path)]
        with collector_paused():
            callbacks = flow_callbacks(options.get("flows"))
            program = import_module(prepare(mod), options.get("desired_layouts"), callbacks)
            spoken = user_flows(callbacks, program.signatures)
            self.notes = program.notes
            self._spokesmen = spoken.by_key
            self.offers = offers_for(program, target, options, spoken.by_key)
            self.signatures = program.signatures
            trial = self.own_costs or default_costs(target)
            found = [self._saturated(graph, commands, trial) for graph in program.graphs]
        self._regions = [saturated for saturated in found if saturated is not None]
        self.times = self._times()

    def best(self, costs: CostModel) -> tuple[Choice, ...]:
        """The best plan of every region."""
        with collector_paused():
            return tuple(self._choice(saturated, costs) for saturated in self._regions)

    def cost_under(self, plan: Sequence[Choice], costed: Sequence[Choice]) -> float | None:
        """What a plan costs under the costs that other choices of the same space were made by."""
        try:
            return sum(_cost_under(choice, other.selection) for choice, other in zip(plan, costed, strict=True))
        except (ExtractionError, LookupError, ValueError):
            return None  # these costs make something impossible that the plan is made of

    def _choice(self, saturated: Saturated, costs: CostModel) -> Choice:
        selection = Selection(saturated, self.signatures, costs)
        solution = solve(selection.problem, time_limit=self._time_limit)
        return Choice(selection, solution, Decoder(selection, solution).run())

    def _saturated(self, graph: Graph, commands: Sequence[Any], trial: CostModel) -> Saturated | None:
        """As planning does it: without the user's rules where these leave no program; None where there is none then."""
        reason = "there are none"
        for rules in (commands, [command for command in commands if is_own(command)]):
            saturated = saturate(graph, self.signatures, rules, self._spokesmen, self.offers, self._limits)
            try:
                self._choice(saturated, trial)
                return saturated
            except (ExtractionError, LookupError, AssertionError, ValueError) as error:
                if isinstance(error, EqsatError) and not isinstance(error, ExtractionError):
                    raise
                reason = str(error)
        self.notes.append(
            f"{graph.function}: its kernels are not all looked for, because rules leave no plan: {reason}"
        )
        return None

    def _times(self) -> Counter[str]:
        """Of alternatives to one op the one that runs an op most often counts: only one of them is chosen."""
        times = Counter(n.signature for s in self._regions for n in s.graph.nodes if n.signature)
        inner: Counter[str] = Counter()
        for key, alternatives in self.offers.graphs.items():
            most: Counter[str] = Counter()
            for alternative in alternatives:
                most |= Counter(node.signature for node in alternative.graph.nodes if node.signature)
            inner.update({signature: count * times[key] for signature, count in most.items()})
        return times + inner


def _cost_under(choice: Choice, selection: Selection) -> float:
    """The nodes of a store are in the order of their costs, so that they are found by what they are."""
    made = {
        (family, store): selection.labels[family][store].index(choice.selection.labels[family][store][index])
        if family < len(selection.labels)
        else index
        for (family, store), index in choice.solution.made.items()
    }
    return cost_of(selection.problem, made, choice.solution.source)
