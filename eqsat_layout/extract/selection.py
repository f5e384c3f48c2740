"""The saturated e-graph as a selection problem, and a solution of it as steps.

In: the tables of a saturation and a cost model. Out: a :class:`Problem` for the solver, then :class:`Steps`.
Tensors that are views of each other form one family; their (tensor, format) pairs are its stores.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from eqsat_layout.egraph.names import Variant
from eqsat_layout.egraph.saturate import Saturated
from eqsat_layout.extract.conversions import Conversions, Spec, unconvertible
from eqsat_layout.extract.cost import CostModel
from eqsat_layout.extract.fusion import fusion_of
from eqsat_layout.extract.problem import Family, Node, Problem, Solution
from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, Part, Run, Step, Steps

T = TypeVar("T", bound=Hashable)

Place = tuple[int, int, int]
"""A family, a store in it, and -1; or instead of -1 the store that a conversion of several steps passes here from."""

Made = tuple[str, Any]
"""How a node makes its store: ("run", (variant, operand specs)), ("part", (index, spec)), ("inside", spec) or
("given", graph node). A run may bring copies along that its kernel does by the way: ("run-into", (variant, operand
specs, result spec before, after)) and ("run-from", (variant, operand specs, operand number, format needed))."""


_MANY_USERS = 8


class Selection:
    """The problem of one region. ``problem`` is what the solver gets; :meth:`steps` decodes its answer."""

    def __init__(self, saturated: Saturated, signatures: Mapping[str, Signature], costs: CostModel):
        self._saturated, self._signatures, self._costs = saturated, signatures, costs
        self._names = saturated.names
        self._number: dict[Any, int] = {}
        self._types: list[TensorType | None] = []
        self._first_node: list[int] = []
        for i, handle in enumerate(saturated.handle_of_node):
            self._tensor(handle, i)
        self._constants: dict[int, Constant] = {}
        for name, handle in sorted(saturated.tables.rows("Const"), key=lambda row: (len(row[0]), row[0])):
            self._constants.setdefault(self._tensor(handle), self._names.constants[name])
        self._makers: dict[Spec, list[tuple[float, Made]]] = {}
        nodes = [self._number[handle] for handle in saturated.handle_of_node]
        self._fusion = fusion_of(saturated.graph, signatures, nodes)
        self._read_makers()
        self._place: dict[Spec, tuple[int, int]] = {}
        self._stores: list[list[list[Spec]]] = []
        self._build_stores()
        self._labels: list[list[list[Made]]] = []
        self._conversions = Conversions(self._names.formats, self._types, self._costs)
        self._copies = self._shared_constants()
        self.problem = self._build_problem()

    # ---- reading the tables -----------------------------------------------------------------------------------------

    def _tensor(self, handle: Any, node: int = -1) -> int:
        number = self._number.get(handle)
        if number is None:
            number = self._number[handle] = len(self._types)
            self._types.append(self._saturated.types.get(handle))
            self._first_node.append(node)
        return number

    def _read_makers(self) -> None:
        tables = self._saturated.tables
        operands = _OperandLists(tables, self._tensor)
        costs: dict[tuple[str, frozenset[int]], float] = {}
        runs: list[tuple[int, str, str, tuple[Spec, ...]]] = []
        for y, fmt, key, args in tables.rows("run"):
            variant = self._names.variants[key]
            tensors = operands.of(args)
            tensor = self._tensor(y)
            reads = tuple(zip(tensors, variant.operands, strict=True))
            fused = self._fusion.fused(tensor, tensors)
            if (key, fused) not in costs:
                costs[key, fused] = self._run_cost(variant, fused)
            self._add_maker((tensor, fmt), costs[key, fused], ("run", (key, reads)))
            runs.append((tensor, fmt, key, reads))
        for z, fmt, index, y, formats in tables.rows("part"):
            self._add_maker((self._tensor(z), fmt), 0.0, ("part", (index, (self._tensor(y), formats))))
        for z, fmt, x, wide in tables.rows("inside"):
            self._add_maker((self._tensor(z), fmt), 0.0, ("inside", (self._tensor(x), wide)))
        for y, fmt in tables.rows("given"):
            tensor = self._tensor(y)
            self._add_maker((tensor, fmt), 0.0, ("given", self._param_node(tensor)))
        self._absorb_copies(runs)
        for makers in self._makers.values():
            if len(makers) > 1:
                makers.sort()  # names, not handles: the order is the same in every process

    def _absorb_copies(self, runs: Sequence[tuple[int, str, str, tuple[Spec, ...]]]) -> None:
        """Copies that the kernel of an elementwise op does by the way, of its result and of one of its operands."""
        formats: dict[int, set[str]] = {}
        for tensor, fmt in self._wanted(runs):
            formats.setdefault(tensor, set()).add(fmt)
        costs: dict[Any, float] = {}
        for tensor, fmt, key, reads in runs:
            fused = self._fusion.fused(tensor, [t for t, _ in reads])
            if self._fusion.absorbs(tensor):
                for after in formats.get(tensor, ()):
                    made: Made = ("run-into", (key, reads, fmt, after))
                    self._add_absorbed(costs, (tensor, after), key, fused, (tensor, fmt, after), made)
            for i, (source, needed) in enumerate(reads):
                if source in self._constants or not self._fusion.reads_anyhow(tensor, i, source):
                    continue
                for given in formats.get(source, ()):
                    changed = (*reads[:i], (source, given), *reads[i + 1 :])
                    made = ("run-from", (key, changed, i, needed))
                    self._add_absorbed(costs, (tensor, fmt), key, fused, (source, given, needed), made)

    def _wanted(self, runs: Iterable[tuple[int, str, str, tuple[Spec, ...]]]) -> Iterable[Spec]:
        """What is read or made anywhere, apart from constants."""
        specs = dict.fromkeys(spec for _, _, _, reads in runs for spec in reads)
        specs |= dict.fromkeys((*self._makers, *self._goal_specs()))
        return (spec for spec in specs if spec[0] not in self._constants)

    def _add_absorbed(
        self,
        costs: dict[Any, float],
        spec: Spec,
        key: str,
        fused: frozenset[int],
        copy: tuple[int, str, str],
        made: Made,
    ) -> None:
        """``copy``: the tensor that the kernel copies by the way, and its formats before and after."""
        tensor, before, after = copy
        ty, source, target = self._types[tensor], self._names.formats.get(before), self._names.formats.get(after)
        if before == after or ty is None or source is None or target is None or source.serves_as(target):
            return
        question = (key, fused, ty, before, after)
        if question not in costs:
            costs[question] = math.inf
            if source.index_map.inverse() is not None:
                own = self._run_cost(self._names.variants[key], fused)
                costs[question] = own + max(0.0, float(self._costs.convert(ty, source, target, fused=True)))
        if costs[question] < math.inf:
            self._add_maker(spec, costs[question], made)

    def _add_maker(self, spec: Spec, cost: float, made: Made) -> None:
        if spec[0] not in self._constants:
            self._makers.setdefault(spec, []).append((cost, made))

    def _param_node(self, tensor: int) -> int:
        """The parameter among the bindings of a class; one that is given is always there."""
        nodes = self._saturated.graph.nodes
        first = self._first_node[tensor]
        if nodes[first].kind == "param":
            return first
        handle = self._saturated.handle_of_node[first]
        return next(i for i, h in enumerate(self._saturated.handle_of_node) if h == handle and nodes[i].kind == "param")

    def _run_cost(self, variant: Variant, fused: frozenset[int]) -> float:
        signature = self._signatures[variant.signature]
        formats = self._names.formats
        results = self._names.lists.get(variant.result, (variant.result,))
        operands = [formats.get(f) for f in variant.operands]
        return self._costs.run(signature, operands, [formats.get(f) for f in results], fused=fused)

    # ---- stores and families ----------------------------------------------------------------------------------------

    def _build_stores(self) -> None:
        """Joins (tensor, format) pairs that are the same buffer; tensors that share buffers form a family."""
        pairs: _Sets[Spec] = _Sets()
        tensors: _Sets[int] = _Sets()
        specs = dict.fromkeys(self._all_specs())
        for y, f, x, g in sorted(
            (self._tensor(y), f, self._tensor(x), g) for y, f, x, g in self._saturated.tables.rows("same")
        ):
            if y in self._constants or x in self._constants:
                continue
            specs.setdefault((y, f))
            specs.setdefault((x, g))
            pairs.join((y, f), (x, g))
            tensors.join(y, x)
        families: dict[int, int] = {}
        stores: dict[Spec, tuple[int, int]] = {}
        for spec in sorted(specs):
            root = tensors.find(spec[0])
            family = families.setdefault(root, len(families))
            if family == len(self._stores):
                self._stores.append([])
            leader = pairs.find(spec)
            place = stores.get(leader)
            if place is None:
                place = stores[leader] = (family, len(self._stores[family]))
                self._stores[family].append([])
            self._stores[family][place[1]].append(spec)
            self._place[spec] = place

    def _all_specs(self) -> Iterable[Spec]:
        for spec, makers in self._makers.items():
            yield spec
            for _, made in makers:
                yield from (s for s in _reads(made) if s[0] not in self._constants)
        yield from (s for s in self._goal_specs() if s[0] not in self._constants)

    def _goal_specs(self) -> list[Spec]:
        handles = self._saturated.handle_of_node
        return [(self._tensor(handles[i]), self._row_major_name(i)) for i, _ in self._saturated.graph.goals]

    def _row_major_name(self, node: int) -> str:
        return self._names.row_major(self._saturated.graph.value_types(node, self._signatures))

    def _shared_constants(self) -> dict[int, dict[str, float]]:
        """Costs of a copy per format, of the constants of which two users may want different copies.

        The copies of other constants cost the same in every plan. One with very many users is wanted in every layout
        there is, and would only keep the problem wide, so it is left out too.
        """
        users: dict[int, set[int]] = {}
        formats: dict[int, set[str]] = {}
        for (tensor, _), makers in self._makers.items():
            for _, made in makers:
                for constant, fmt in _reads(made):
                    if constant in self._constants:
                        users.setdefault(constant, set()).add(tensor)
                        formats.setdefault(constant, set()).add(fmt)
        return {
            c: {f: self._copy_cost(c, f) for f in sorted(formats[c])}
            for c, own in sorted(users.items())
            if 2 <= len(own) <= _MANY_USERS and len(formats[c]) > 1 and self._types[c] is not None
        }

    def _copy_cost(self, constant: int, fmt: str) -> float:
        ty, cost = self._types[constant], getattr(self._costs, "constant", None)
        assert ty is not None
        return 0.0 if cost is None else max(0.0, float(cost(ty, self._names.formats[fmt])))

    @property
    def input_constant_cost(self) -> float:
        """What the copies of shared constants cost in the input, each op reading them as it is frozen to or written."""
        graph, total = self._saturated.graph, 0.0
        read: set[Spec] = set()
        for node in graph.nodes:
            if node.kind != "op":
                continue
            signature = self._signatures[node.signature]
            for i, source in enumerate(node.inputs):
                tensor = self._tensor(self._saturated.handle_of_node[source])
                if tensor in self._copies:
                    frozen = signature.frozen
                    fmt = self._row_major_name(source) if frozen is None else self._names.format(frozen.operands[i])
                    read.add((tensor, fmt))
        for tensor, fmt in sorted(read):
            total += self._copies[tensor].get(fmt) or self._copy_cost(tensor, fmt)
        return total

    def _build_problem(self) -> Problem:
        families: list[Family] = []
        copies: dict[Spec, tuple[int, int]] = {}
        for i, (tensor, costs) in enumerate(self._copies.items()):
            copies.update({(tensor, fmt): (len(self._stores) + i, j) for j, fmt in enumerate(costs)})
        for stores in self._stores:
            nodes: list[tuple[Node, ...]] = []
            labels: list[list[Made]] = []
            for specs in stores:
                own: list[Node] = []
                made_by: list[Made] = []
                for spec in specs:
                    for cost, made in self._makers.get(spec, ()):
                        places = (copies.get(s) if s[0] in self._constants else self._place[s] for s in _reads(made))
                        own.append(Node(cost, tuple(place for place in places if place is not None)))
                        made_by.append(made)
                nodes.append(tuple(own))
                labels.append(made_by)
            families.append(Family(tuple(nodes), self._conversions.matrix(stores)))
            self._labels.append(labels)
        for costs in self._copies.values():
            families.append(Family(tuple((Node(c),) for c in costs.values()), unconvertible(len(costs))))
        goals = tuple(self._place[s] for s in self._goal_specs() if s[0] not in self._constants)
        return Problem(tuple(families), tuple(dict.fromkeys(goals)))

    # ---- the answer -------------------------------------------------------------------------------------------------

    def steps(self, solution: Solution) -> Steps:
        """The solution as a program, in the order of the original bindings as far as possible."""
        needed: dict[Place, tuple[Place, ...]] = {}
        pending: list[Place] = [(f, s, -1) for f, s in self.problem.goals]
        while pending:
            place = pending.pop()
            if place not in needed:
                needed[place] = self._children(place, solution)
                pending.extend(needed[place])
        number = {place: i for i, place in enumerate(sorted(needed))}
        result = Steps(goals=[self._operand(spec, number) for spec in self._goal_specs()])
        self._fresh = len(number)
        for place in self._ordered(needed):
            result.steps.extend(self._steps(place, needed[place], solution, number, result.origins))
            result.origins[number[place]] = self._binding_of(place)
            variable = self._variable_of(place)
            if variable is not None:
                result.variables[number[place]] = variable
        return result

    def _children(self, place: Place, solution: Solution) -> tuple[Place, ...]:
        """What a place is made from: the operands of its op, or the one place that it is converted from."""
        family, store, via = place
        source = via if via >= 0 else solution.source.get((family, store), store)
        if source == store:
            children = self.problem.families[family].nodes[store][solution.made[family, store]].children
            return tuple((f, s, -1) for f, s in children if f < len(self._stores))  # the rest are constants
        before = self._conversions.step_before(self._stores[family], source, store)
        # what is on the way may be chosen too, but made of other things, perhaps of this: then it is made twice
        is_chosen = before == source or solution.source.get((family, before)) == source
        return ((family, before, -1 if is_chosen else source),)

    def _variable_of(self, place: Place) -> int | None:
        """The earliest binding whose value, as Relax has it, is this store."""
        if place[2] >= 0:
            return None
        nodes = self._saturated.graph.nodes
        found = [
            self._first_node[t]
            for t, f in self._stores[place[0]][place[1]]
            if self._first_node[t] >= 0 and f == self._row_major_name(self._first_node[t])
        ]
        return min((i for i in found if nodes[i].kind != "param" and nodes[i].var is not None), default=None)

    def _ordered(self, needed: dict[Place, tuple[Place, ...]]) -> list[Place]:
        users: dict[Place, list[Place]] = {}
        missing = {place: len(set(children)) for place, children in needed.items()}
        for place, children in needed.items():
            for child in set(children):
                users.setdefault(child, []).append(place)
        ready = [(self._binding_of(p), p) for p, count in missing.items() if not count]
        heapq.heapify(ready)
        order: list[Place] = []
        while ready:
            _, place = heapq.heappop(ready)
            order.append(place)
            for user in users.get(place, ()):
                missing[user] -= 1
                if not missing[user]:
                    heapq.heappush(ready, (self._binding_of(user), user))
        assert len(order) == len(needed), "a solution never supports itself"
        return order

    def _binding_of(self, place: Place) -> int:
        """The earliest binding among the tensors of a store; what only rules made comes as soon as it can."""
        return min((self._first_node[t] for t, _ in self._stores[place[0]][place[1]]), default=-1)

    def _steps(
        self,
        place: Place,
        children: tuple[Place, ...],
        solution: Solution,
        number: Mapping[Place, int],
        origins: dict[int, int],
    ) -> list[Step]:
        store, (family, target, via) = number[place], place
        if (via if via >= 0 else solution.source.get((family, target), target)) != target:
            (child,) = children
            stores = self._stores[family]
            tensor, before, after = self._conversions.common(stores[child[1]], stores[target])
            return [self._convert(store, number[child], tensor, before, after)]
        kind, detail = self._labels[family][target][solution.made[family, target]]
        if kind == "given":
            return [Given(store, detail)]
        if kind == "inside":
            return [Inside(store, self._operand(detail, number))]
        if kind == "part":
            return [Part(store, self._operand(detail[1], number), detail[0])]
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
            copied = self._new_store(origins, self._first_node[source])
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

    def _tensor_with(self, place: Place, fmt: str) -> int:
        """The tensor of a store whose format is ``fmt``."""
        return next(t for t, f in self._stores[place[0]][place[1]] if f == fmt)

    def _convert(self, store: int, source: int, tensor: int, before: str, after: str) -> Convert:
        ty = self._types[tensor]
        assert ty is not None
        return Convert(store, source, ty, self._names.formats[before], self._names.formats[after])

    def _operand(self, spec: Spec, number: Mapping[Place, int]) -> Operand:
        constant = self._constants.get(spec[0])
        if constant is None:
            return number[(*self._place[spec], -1)]
        return ConstantUse(constant, self._names.formats[spec[1]])


class _OperandLists:
    """Operand lists, from the cells of the e-graph. A class of lists that holds several cells has one content."""

    def __init__(self, tables: Any, tensor: Any):
        self._cells = {cell: (tensor(x), rest) for x, rest, cell in tables.rows("Arg")}
        self._known: dict[Any, tuple[int, ...]] = {cell: () for (cell,) in tables.rows("End")}

    def of(self, handle: Any) -> tuple[int, ...]:
        cells: list[Any] = []
        rest = handle
        while rest not in self._known:
            cells.append(rest)
            rest = self._cells[rest][1]
        for cell in reversed(cells):
            first, rest = self._cells[cell]
            self._known[cell] = (first, *self._known[rest])
        return self._known[handle]


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


def _reads(made: Made) -> tuple[Spec, ...]:
    kind, detail = made
    if kind.startswith("run"):
        return detail[1]  # type: ignore[no-any-return]
    if kind == "part":
        return (detail[1],)
    return (detail,) if kind == "inside" else ()
