"""A solution of the selection problem as steps.

In: a selection and a solution of its problem. Out: :class:`Steps`, which emission turns into Relax, and for each store
of the steps its place in the problem.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from eqsat_layout.extract.conversions import Spec
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solved import server
from eqsat_layout.extract.solver.problem import Solution
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, ResultPart, Run, Step, Steps

StorePlace = tuple[int, int, int]
"""An alias class, a store in it, and -1; or for -1 the store that a conversion of several steps passes here from."""


class Decoder:
    """``places``: for the stores of the steps, the places of the problem that they stand for."""

    def __init__(self, selection: Selection, solution: Solution):
        self._selection, self._solution = selection, solution
        self._tensors, self._names = selection.tensors, selection.tensors.saturated.names
        self._fresh = 0
        self.places: dict[int, StorePlace] = {}

    def run(self) -> Steps:
        """The solution as a program, in the order of the original bindings as far as possible."""
        needed: dict[StorePlace, tuple[StorePlace, ...]] = {}
        pending: list[StorePlace] = [(f, s, -1) for f, s in self._selection.problem.goals]
        while pending:
            place = pending.pop()
            if place not in needed:
                needed[place] = self._children(place)
                pending.extend(needed[place])
        number = {place: i for i, place in enumerate(sorted(needed))}
        result = Steps(goals=[self._operand(spec, number) for spec in self._tensors.goals])
        self._fresh = len(number)
        for place in self._ordered(needed):
            own = self._steps(place, needed[place], number, result.origins)
            self.places.update((step.store, place) for step in own)
            result.steps.extend(own)
            result.origins[number[place]] = self._binding_of(place)
            variable = self._variable_of(place)
            if variable is not None:
                result.variables[number[place]] = variable
        return result

    def _children(self, place: StorePlace) -> tuple[StorePlace, ...]:
        """What a place is made from: the operands of its op, or the one place that it is converted from."""
        alias_class, store, via = place
        source = via if via >= 0 else self._solution.source.get((alias_class, store), store)
        if source == store:
            children = (
                self._selection.problem.classes[alias_class]
                .nodes[store][self._solution.made[alias_class, store]]
                .children
            )
            return tuple(self._place(*p) for p in children if p[0] < len(self._selection.stores))  # the rest: constants
        before = self._selection.conversions.step_before(self._selection.stores[alias_class], source, store)
        # what is on the way may be chosen too, but made of other things, perhaps of this: then it is made twice
        is_chosen = before == source or self._solution.source.get((alias_class, before)) == source
        return ((alias_class, before, -1 if is_chosen else source),)

    def _place(self, alias_class: int, store: int) -> StorePlace:
        """Where a store is read; for a part's need the tuple that serves it, which nothing has to be done for."""
        return *server(self._selection, self._solution, (alias_class, store)), -1

    def _variable_of(self, place: StorePlace) -> int | None:
        """The earliest binding whose value, as Relax has it, is this store."""
        if place[2] >= 0:
            return None
        nodes = self._tensors.saturated.graph.nodes
        found = [
            self._tensors.first_node[t]
            for t, f in self._selection.stores[place[0]][place[1]]
            if self._tensors.first_node[t] >= 0 and f == self._tensors.row_major_name(self._tensors.first_node[t])
        ]
        return min((i for i in found if nodes[i].kind != "param" and nodes[i].var is not None), default=None)

    def _ordered(self, needed: dict[StorePlace, tuple[StorePlace, ...]]) -> list[StorePlace]:
        users: dict[StorePlace, list[StorePlace]] = {}
        missing = {place: len(set(children)) for place, children in needed.items()}
        for place, children in needed.items():
            for child in set(children):
                users.setdefault(child, []).append(place)
        ready = [(self._binding_of(p), p) for p, count in missing.items() if not count]
        heapq.heapify(ready)
        order: list[StorePlace] = []
        while ready:
            _, place = heapq.heappop(ready)
            order.append(place)
            for user in users.get(place, ()):
                missing[user] -= 1
                if not missing[user]:
                    heapq.heappush(ready, (self._binding_of(user), user))
        assert len(order) == len(needed), "a solution never supports itself"
        return order

    def _binding_of(self, place: StorePlace) -> int:
        """The earliest binding among the tensors of a store; what only rules made comes as soon as it can."""
        return min((self._tensors.first_node[t] for t, _ in self._selection.stores[place[0]][place[1]]), default=-1)

    def _steps(
        self,
        place: StorePlace,
        children: tuple[StorePlace, ...],
        number: Mapping[StorePlace, int],
        origins: dict[int, int],
    ) -> list[Step]:
        store, (alias_class, target, via) = number[place], place
        if (via if via >= 0 else self._solution.source.get((alias_class, target), target)) != target:
            (child,) = children
            stores = self._selection.stores[alias_class]
            tensor, before, after = self._selection.conversions.common(stores[child[1]], stores[target])
            return [self._convert(store, number[child], tensor, before, after)]
        kind, detail = self._selection.labels[alias_class][target][self._solution.made[alias_class, target]]
        if kind == "given":
            return [Given(store, detail)]
        if kind == "inside":
            return [Inside(store, self._operand(detail, number))]
        if kind == "part":
            return [ResultPart(store, self._operand(detail[1], number), detail[0])]
        variant = self._names.variants[detail[0]]
        operands = [self._operand(spec, number) for spec in detail[1]]
        before_run: list[Step] = []
        after_run: list[Step] = []
        made = store
        if kind == "run-into":
            made = self._new_store(origins, self._binding_of(place))
            after_run.append(self._convert(store, made, self._tensor_with(place, detail[3]), detail[2], detail[3]))
        elif kind == "run-from":
            number_, needed = detail[2:]
            source, given = detail[1][number_]
            copied = self._new_store(origins, self._tensors.first_node[source])
            assert isinstance(operands[number_], int), "copies of constants are made when compiling"
            before_run.append(self._convert(copied, int(operands[number_]), source, given, needed))
            operands[number_] = copied
        run = Run(made, variant.signature, variant.flow, tuple(operands))
        return [*before_run, run, *after_run]

    def _new_store(self, origins: dict[int, int], node: int) -> int:
        """A store of the steps that is none of the problem."""
        store, self._fresh = self._fresh, self._fresh + 1
        origins[store] = node
        return store

    def _tensor_with(self, place: StorePlace, fmt: str) -> int:
        """The tensor of a store whose format is ``fmt``."""
        return next(t for t, f in self._selection.stores[place[0]][place[1]] if f == fmt)

    def _convert(self, store: int, source: int, tensor: int, before: str, after: str) -> Convert:
        ty = self._tensors.types[tensor]
        assert ty is not None
        return Convert(store, source, ty, self._names.formats[before], self._names.formats[after])

    def _operand(self, spec: Spec, number: Mapping[StorePlace, int]) -> Operand:
        constant = self._tensors.constants.get(spec[0])
        if constant is None:
            return number[self._place(*self._selection.place[spec])]
        return ConstantUse(constant, self._names.formats[spec[1]])
