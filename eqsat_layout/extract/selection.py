"""The saturated e-graph as a selection problem.

In: the tables of a saturation and a cost model. Out: a :class:`Problem` for the solver. Tensors that are views of each
other form one alias class; their (tensor, format) pairs are its stores.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.conversions import Conversions, Spec, unconvertible
from eqsat_layout.extract.makers import Made, Makers, reads_of
from eqsat_layout.extract.solver.problem import AliasClass, ENode, Problem
from eqsat_layout.extract.tensors import Tensors
from eqsat_layout.extract.tuple_parts import TupleParts
from eqsat_layout.graph.graph import Signature

T = TypeVar("T", bound=Hashable)

_MANY_USERS = 8


class Selection:
    """The problem of one region: ``problem`` is what the solver gets.

    ``stores[alias_class][store]`` are the specs that share the buffer, ``labels[alias_class][store][node]`` says what a
    node is. ``fusion``: what becomes one kernel, by the numbers of tensors.
    """

    def __init__(self, tensors: Tensors, signatures: Mapping[str, Signature], costs: CostModel, fusion: Fusion):
        self._signatures, self._costs = signatures, costs
        self._names = tensors.saturated.names
        self.tensors, self.fusion = tensors, fusion
        self._makers = Makers(self.tensors, signatures, costs, fusion)
        self.place: dict[Spec, tuple[int, int]] = {}
        self.stores: list[list[list[Spec]]] = []
        self._build_stores()
        self.labels: list[list[list[Made]]] = []
        self.parts = TupleParts(self._names.lists, self._makers.parts)
        self.conversions = Conversions(self._names.formats, self.tensors.types, self._costs, self.parts)
        self._copies = self._shared_constants()
        self.problem = self._build_problem()

    def _build_stores(self) -> None:
        """Joins (tensor, format) pairs that are the same buffer; tensors that share buffers form an alias class."""
        pairs: _Sets[Spec] = _Sets()
        tensors: _Sets[int] = _Sets()
        specs = dict.fromkeys(self._all_specs())
        for y, f, x, g in sorted(
            (self.tensors.number(y), f, self.tensors.number(x), g)
            for y, f, x, g in self.tensors.saturated.tables.rows("same")
        ):
            if y in self.tensors.constants or x in self.tensors.constants:
                continue
            if not (self.tensors.is_held((y, f)) and self.tensors.is_held((x, g))):
                continue
            specs.setdefault((y, f))
            specs.setdefault((x, g))
            pairs.join((y, f), (x, g))
            tensors.join(y, x)
        classes: dict[int, int] = {}
        stores: dict[Spec, tuple[int, int]] = {}
        for spec in sorted(specs):
            root = tensors.find(spec[0])
            alias_class = classes.setdefault(root, len(classes))
            if alias_class == len(self.stores):
                self.stores.append([])
            leader = pairs.find(spec)
            place = stores.get(leader)
            if place is None:
                place = stores[leader] = (alias_class, len(self.stores[alias_class]))
                self.stores[alias_class].append([])
            self.stores[alias_class][place[1]].append(spec)
            self.place[spec] = place

    def _all_specs(self) -> Iterable[Spec]:
        for spec, makers in self._makers.by_spec.items():
            yield spec
            for _, made in makers:
                yield from (s for s in reads_of(made) if s[0] not in self.tensors.constants)
        yield from (s for s in self.tensors.goals if s[0] not in self.tensors.constants)

    def _shared_constants(self) -> dict[int, dict[str, float]]:
        """Costs of a copy per format, of the constants of which two users may want different copies.

        The copies of other constants cost the same in every plan. One with very many users is wanted in every layout
        there is, and would only keep the problem wide, so it is left out too.
        """
        users: dict[int, set[int]] = {}
        formats: dict[int, set[str]] = {}
        for (tensor, _), makers in self._makers.by_spec.items():
            for _, made in makers:
                for constant, fmt in reads_of(made):
                    if constant in self.tensors.constants:
                        users.setdefault(constant, set()).add(tensor)
                        formats.setdefault(constant, set()).add(fmt)
        return {
            c: {f: self._copy_cost(c, f) for f in sorted(formats[c])}
            for c, own in sorted(users.items())
            if 2 <= len(own) <= _MANY_USERS and len(formats[c]) > 1 and self.tensors.types[c] is not None
        }

    def _copy_cost(self, constant: int, fmt: str) -> float:
        ty, cost = self.tensors.types[constant], getattr(self._costs, "constant", None)
        assert ty is not None
        return 0.0 if cost is None else max(0.0, float(cost(ty, self._names.formats[fmt])))

    @property
    def input_constant_cost(self) -> float:
        """What the copies of shared constants cost in the input, each op reading them as it is frozen to or written."""
        graph, total = self.tensors.saturated.graph, 0.0
        read: set[Spec] = set()
        for node in graph.nodes:
            if node.kind != "op":
                continue
            signature = self._signatures[node.signature]
            for i, source in enumerate(node.inputs):
                tensor = self.tensors.of_node[source]
                if tensor in self._copies:
                    frozen = signature.frozen
                    fmt = (
                        self.tensors.row_major_name(source)
                        if frozen is None
                        else self._names.format(frozen.operands[i])
                    )
                    read.add((tensor, fmt))
        for tensor, fmt in sorted(read):
            total += self._copies[tensor].get(fmt) or self._copy_cost(tensor, fmt)
        return total

    def _build_problem(self) -> Problem:
        classes: list[AliasClass] = []
        copies: dict[Spec, tuple[int, int]] = {}
        for i, (tensor, costs) in enumerate(self._copies.items()):
            copies.update({(tensor, fmt): (len(self.stores) + i, j) for j, fmt in enumerate(costs)})
        for stores in self.stores:
            nodes: list[tuple[ENode, ...]] = []
            labels: list[list[Made]] = []
            for specs in stores:
                own: list[ENode] = []
                made_by: list[Made] = []
                for spec in specs:
                    for cost, made in self._makers.by_spec.get(spec, ()):
                        places = (
                            copies.get(s) if s[0] in self.tensors.constants else self.place[s] for s in reads_of(made)
                        )
                        own.append(ENode(cost, tuple(place for place in places if place is not None)))
                        made_by.append(made)
                nodes.append(tuple(own))
                labels.append(made_by)
            classes.append(AliasClass(tuple(nodes), self.conversions.matrix(stores)))
            self.labels.append(labels)
        for costs in self._copies.values():
            classes.append(AliasClass(tuple((ENode(c),) for c in costs.values()), unconvertible(len(costs))))
        goals = tuple(self.place[s] for s in self.tensors.goals if s[0] not in self.tensors.constants)
        return Problem(tuple(classes), tuple(dict.fromkeys(goals)))


class _Sets(Generic[T]):
    """Disjoint sets."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, item: T) -> T:
        root = item
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while item != root:
            self._parent[item], item = root, self._parent.get(item, root)
        return root

    def join(self, a: T, b: T) -> None:
        self._parent[self.find(a)] = self.find(b)
