"""All plans of a program, saturated once and extracted as often as costs change.

In: a module, a target and options as ``compile`` takes them. Out: the best plan under any cost model, as regions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.region import Region
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solver.problem import ExtractionError, cost_of
from eqsat_layout.graph.well_formed import well_formed
from eqsat_layout.notes import Notes
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.search import extract, plan_regions, search_of
from eqsat_layout.system.collector import collector_paused
from eqsat_layout.targets.lowering import prepared
from eqsat_layout.targets.protocol import Target


class PlanSpace:
    """``times``: how often one run of the program runs an op, by the key of its signature; ops of alternatives too.

    ``own_costs`` is the user's cost model, if there is one; ``notes`` say what could not be planned.
    """

    def __init__(self, mod: Any, target: Target, options: Options):
        """Raises what planning raises for a malformed module or option."""
        mod = well_formed(mod)
        notes = Notes()
        with collector_paused():
            search = search_of(
                prepared(mod, target, notes=notes),
                target,
                options,
                Snapshot(),
                all_algorithms=True,
            )
            self._regions = [region.saturated for region in plan_regions(search)]
        self._search = search
        self.own_costs: CostModel | None = None if options.get("cost_model") is None else search.costs
        stopped = [note for saturated in self._regions for note in saturated.notes]
        self.notes = list(dict.fromkeys([*notes, *search.program.notes, *stopped]))
        self.signatures, self.offers = search.program.signatures, search.offers
        self.times = self._times()

    def best(self, costs: CostModel) -> tuple[Region, ...]:
        """The best plan of every region."""
        search = replace(self._search, costs=costs)
        with collector_paused():
            return tuple(extract(saturated, search) for saturated in self._regions)

    def cost_under(self, plan: Sequence[Region], costed: Sequence[Region]) -> float | None:
        """What a plan costs under the costs that other choices of the same space were made by."""
        try:
            return sum(cost_under(region, other.selection) for region, other in zip(plan, costed, strict=True))
        except (ExtractionError, LookupError, ValueError):
            return None  # these costs make something impossible that the plan is made of

    def _times(self) -> Counter[str]:
        """How often each op may run: of several alternatives to one op only one is chosen, so the maximum counts."""
        times = Counter(n.signature for s in self._regions for n in s.graph.nodes if n.signature)
        inner: Counter[str] = Counter()
        for key, alternatives in self.offers.graphs.items():
            most: Counter[str] = Counter()
            for alternative in alternatives:
                most |= Counter(node.signature for node in alternative.graph.nodes if node.signature)
            inner.update({signature: count * times[key] for signature, count in most.items()})
        return times + inner


def cost_under(region: Region, selection: Selection) -> float:
    """What a plan costs under the costs that another selection of the same region was made by.

    The nodes of a store are in the order of their costs, so that they are found by what they are.
    """
    made = {
        (alias_class, store): selection.labels[alias_class][store].index(
            region.selection.labels[alias_class][store][index]
        )
        if alias_class < len(selection.labels)
        else index
        for (alias_class, store), index in region.solution.made.items()
    }
    return cost_of(selection.problem, made, region.solution.source)
