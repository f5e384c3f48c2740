"""Why a solution is as it is.

In: a selection, its solution and the steps. Out: for every copy what the program would cost without it, for every op
how it came to its formats, and what each step costs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat_layout.egraph.derivations import Derivations, RunOp
from eqsat_layout.egraph.limits import Stop
from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.extract.decode import Decoder, StorePlace
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solver.frontier import solve
from eqsat_layout.extract.solver.problem import ENode, ExtractionError, Problem, Solution, StoreId, same_bytes
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Run, Step, Steps
from eqsat_layout.maps import Format

_STATES = 1_000
"""Of the solver, for the question what one copy saves; beyond, the answer is a bound, the same on every machine."""


@dataclass(frozen=True)
class Stay:
    """Why a copy stays: its modelled ``cost``, 0 where the kernel of an op does it by the way, and the program's cost
    without it (None: it can't do without)."""

    step: Convert
    cost: float
    without: float | None


@dataclass(frozen=True)
class Production:
    """One way to make a tensor: the signature of the op that does it last, its result's format, its modelled cost.

    Of several results the format is the first one's, and None where they are as written.

    Where that op is the last of several that only this way needs, as those of an algorithm, the cost is of all of them.
    """

    signature: str
    format: Format | None
    origin: str
    cost: float


@dataclass(frozen=True)
class RunReason:
    """How an op came to be run as it is: ``origin`` in words, the ``rules`` that led there, the modelled ``cost``.

    In place of the rules stands why they are not known, where that took too long.
    ``others`` is how many other ways there were to make the same tensor, in this format or another.
    """

    step: Run
    origin: str
    rules: tuple[str, ...]
    cost: float
    others: int


class Reasons:
    """Answers about one region; each is worked out when asked for."""

    def __init__(self, selection: Selection, solution: Solution, decoder: Decoder, steps: Steps):
        self._selection, self._solution = selection, solution
        self._places, self._steps = decoder.places, steps
        self._made = {step.store: step for step in steps.steps}

    def stays(self) -> Iterator[Stay]:
        """The copies of the plan, in its order."""
        for step in self._steps.steps:
            if isinstance(step, Convert) and not step.before.serves_as(step.after):
                place = self._places[step.store]
                cost = 0.0 if self._is_absorbed(place) else self._copy_cost(place)
                yield Stay(step, cost, self._cost_without(place))

    @cached_property
    def choices(self) -> tuple[RunReason, ...]:
        """The ops of the plan, in its order."""
        saturated = self._selection.tensors.saturated
        original = {n.signature for n in saturated.graph.nodes}
        found: list[RunReason] = []
        behind: Mapping[int, tuple[str, ...]] = {} if isinstance(self._rules, Stop) else self._rules
        for step in self._runs:
            rules = behind.get(step.store, (self.unknown_rules,))
            alias_class, store, index, (kind, detail) = self._way(step)
            variant = saturated.names.variants[detail[0]]
            origin = variant.origin
            if step.signature not in original:
                origin = f"part of an alternative, {origin}"
            if kind != "run":
                origin += ", with a copy done by the same kernel"
            others = sum(map(len, self._selection.problem.classes[alias_class].nodes)) - 1
            found.append(RunReason(step, origin, rules, self._node(alias_class, store, index).cost, others))
        return tuple(found)

    @property
    def unknown_rules(self) -> str:
        """Why ``choices`` do not tell rules, "" where they do."""
        stop = self._rules
        return f"not known, stopped by the limit of {stop.limit}" if isinstance(stop, Stop) else ""

    @cached_property
    def _rules(self) -> dict[int, tuple[str, ...]] | Stop:
        """Those behind each op, by its store; or why they are not known."""
        saturated = self._selection.tensors.saturated

        def question(derivations: Derivations) -> dict[int, tuple[str, ...]]:
            classes, found = _classes(saturated, derivations), {}
            for step in self._runs:
                _, _, _, (_, detail) = self._way(step)
                variant = saturated.names.variants[detail[0]]
                operands = tuple(classes[self._selection.tensors.handles[tensor]] for tensor, _ in detail[1])
                op = RunOp(variant.signature, operands, variant.key, variant.result, self._from_outside(step))
                found[step.store] = derivations.rules_behind(op)
            return found

        return saturated.derived(question)

    @property
    def _runs(self) -> list[Run]:
        return [step for step in self._steps.steps if isinstance(step, Run)]

    def _way(self, step: Run) -> tuple[int, int, int, tuple[str, Any]]:
        """The alias class and store of its result, which of the ways to make that it is, and the label of that way."""
        alias_class, store, _ = self._places[step.store]
        index = self._solution.made[alias_class, store]
        return alias_class, store, index, self._selection.labels[alias_class][store][index]

    def ways(self, store: int) -> list[Production]:
        """The ways there were to make what a step makes, the cheapest first, each in its format once."""
        return self._ways(self._places[store][0])

    def ways_of_node(self, node: int) -> list[Production]:
        """Those to make the value of a binding."""
        tensor = self._selection.tensors.of_node[node]
        return self._ways(next((c for (t, _), (c, _) in self._selection.place.items() if t == tensor), -1))

    def _ways(self, alias_class: int) -> list[Production]:
        if alias_class < 0:
            return []
        names = self._selection.tensors.saturated.names
        found: dict[tuple[str, str], Production] = {}
        nodes = self._selection.problem.classes[alias_class].nodes
        for own, labels in zip(nodes, self._selection.labels[alias_class], strict=True):
            for node, (kind, detail) in zip(own, labels, strict=True):
                if kind == "run":
                    variant = names.variants[detail[0]]
                    key = (variant.signature, variant.result)
                    cost = node.cost + self._inner_costs.of(node)
                    if key not in found or cost < found[key].cost:
                        several = variant.flow.results if variant.flow is not None else ()
                        fmt = names.formats.get(variant.result) or next(iter(several), None)
                        found[key] = Production(variant.signature, fmt, variant.origin, cost)
        return sorted(found.values(), key=lambda way: way.cost)

    @cached_property
    def _inner_costs(self) -> _InnerCosts:
        return _InnerCosts(self._selection)

    def _from_outside(self, step: Run) -> tuple[int, ...]:
        """The operands that no op makes: constants, and what comes from parameters."""
        return tuple(
            i for i, operand in enumerate(step.operands) if isinstance(operand, ConstantUse) or self._is_given(operand)
        )

    def _is_given(self, store: int) -> bool:
        step: Step | None = self._made.get(store)
        while step is not None and not isinstance(step, Run | Given):
            step = self._made.get(step.source) if isinstance(step.source, int) else None
        return isinstance(step, Given)

    def costs(self) -> dict[int, float]:
        """Modelled seconds of each step, by its store; what a kernel does by the way is free."""
        found: dict[int, float] = {}
        for step in self._steps.steps:
            alias_class, store, _ = place = self._places[step.store]
            if isinstance(step, Run):
                found[step.store] = self._node(alias_class, store, self._solution.made[alias_class, store]).cost
            elif isinstance(step, Convert):
                found[step.store] = 0.0 if self._is_absorbed(place) else self._copy_cost(place)
        return found

    def _node(self, alias_class: int, store: int, index: int) -> ENode:
        return self._selection.problem.classes[alias_class].nodes[store][index]

    def _source(self, place: StorePlace) -> int:
        alias_class, store, via = place
        return via if via >= 0 else self._solution.source.get((alias_class, store), store)

    def _is_absorbed(self, place: StorePlace) -> bool:
        return self._source(place) == place[1]

    def _copy_cost(self, place: StorePlace) -> float:
        alias_class, store, _ = place
        source = self._source(place)
        if source != store:
            return self._selection.problem.classes[alias_class].convert[source][store]
        return self._node(alias_class, store, self._solution.made[alias_class, store]).cost

    def _cost_without(self, place: StorePlace) -> float | None:
        """The best cost of a program in which this copy is not made."""
        alias_class, store, _ = place
        own, source = self._selection.problem.classes[alias_class], self._source(place)
        if source != store:
            rows = [list(row) for row in own.convert]
            leaders = same_bytes(own.convert)
            for other, leader in enumerate(leaders):
                if leader == leaders[store]:
                    rows[source][other] = math.inf
            changed = replace(own, convert=tuple(map(tuple, rows)))
        else:
            ways = list(own.nodes[store])
            ways[self._solution.made[alias_class, store]] = ENode(math.inf)
            nodes = (*own.nodes[:store], tuple(ways), *own.nodes[store + 1 :])
            changed = replace(own, nodes=nodes)
        classes = list(self._selection.problem.classes)
        classes[alias_class] = changed
        try:
            return solve(Problem(tuple(classes), self._selection.problem.goals), max_states=_STATES).cost
        except ExtractionError:
            return None


class _InnerCosts:
    """What tensors cost that no binding of the program has: the steps of algorithms."""

    def __init__(self, selection: Selection):
        self._problem = selection.problem
        first = selection.tensors.first_node
        self._is_inner = [all(first[t] < 0 for specs in own for t, _ in specs) for own in selection.stores]
        self._known: dict[StoreId, float] = {}

    def of(self, node: ENode) -> float:
        """The cost of a node's operands, each made in the cheapest way."""
        return sum(self._store(child) for child in set(node.children) if self._is_inner[child[0]])

    def _store(self, store: StoreId) -> float:
        if store not in self._known:
            self._known[store] = math.inf  # made out of itself: not in this way
            alias_class, number = store
            own = self._problem.classes[alias_class]
            self._known[store] = min(
                (
                    node.cost + self.of(node) + own.convert[source][number]
                    for source, nodes in enumerate(own.nodes)
                    for node in nodes
                    if own.convert[source][number] < math.inf
                ),
                default=math.inf,
            )
        return self._known[store]


def _classes(saturated: Saturated, derivations: Derivations) -> dict[Any, Hashable]:
    """The e-classes of the e-graph that wrote down its derivations, by those of the one that the plan is from."""
    found = {handle: derivations.term("Ref", ref) for ref, handle in saturated.handle_of_ref.items()}
    for handle, name in saturated.constants:
        found[handle] = derivations.term("Const", name)
    for handle, (table, (name, *operands)) in saturated.terms.items():
        own = [found[operand] for operand in operands]
        found[handle] = derivations.op(name, own) if table == "Op" else derivations.term("Get", name, *own)
    return found
