"""Saturation: a graph in, everything that could be done with it out.

The graph is loaded in bulk, the phases of the rules run in turn, and the questions that rules ask are answered in
batches until none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.egraph.answers import Answers, Refused
from eqsat_layout.egraph.database import Database, Row, Tables
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.rules import Command
from eqsat_layout.egraph.user_flows import Spokesman
from eqsat_layout.errors import RuleError
from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType

MAX_ROUNDS = 200
"""Rounds of asking and answering per phase; real programs need fewer than ten."""


@dataclass
class Saturated:
    """The saturated e-graph of one region, as tables. E-classes are opaque handles."""

    graph: Graph
    names: Names
    tables: Tables
    types: dict[Any, TensorType | None]
    handle_of_node: list[Any]
    rounds: int
    e_nodes: int
    e_classes: int
    notes: list[str]
    refusals: list[Refused]


def saturate(
    graph: Graph,
    signatures: Mapping[str, Signature],
    commands: Sequence[Command],
    spokesmen: Mapping[str, Spokesman] | None = None,
) -> Saturated:
    """Runs all rules on ``graph``; ``spokesmen`` are the user's flow callbacks, by the keys of signatures."""
    database = Database(commands)
    try:
        return _Saturation(database, graph, signatures, spokesmen).run()
    finally:
        database.close()


class _Saturation:
    def __init__(
        self,
        database: Database,
        graph: Graph,
        signatures: Mapping[str, Signature],
        spokesmen: Mapping[str, Spokesman] | None,
    ):
        self._database, self._graph, self._signatures = database, graph, signatures
        self._names = Names()
        used = {node.signature for node in graph.nodes if node.kind == "op"}
        self._answers = Answers({k: s for k, s in signatures.items() if k in used}, self._names, spokesmen=spokesmen)
        self._asked: dict[str, set[Row]] = {}
        self._types_between: dict[int, TensorType] = {}
        self._rounds = 0
        self._notes: list[str] = []

    def run(self) -> Saturated:
        self._load()
        self._phase("logical")
        self._phase("flow")
        self._database.saturate("build")
        if self._answers.refused:
            self._notes.append(f"{self._answers.refused} layouts were not explored: too many for one tensor shape")
        tables = self._database.tables()
        e_nodes, e_classes = tables.enodes_and_classes(("Tensor", "Args"))
        refs = {i: handle for i, handle in tables.rows("Ref")}
        handles = [refs[i] for i in range(len(self._graph.nodes))]
        types: dict[Any, TensorType | None] = {}
        for node, handle in zip(self._graph.nodes, handles, strict=True):
            types.setdefault(handle, node.type)
        for ref, ty in self._types_between.items():
            types.setdefault(refs[ref], ty)
        return Saturated(
            self._graph,
            self._names,
            tables,
            types,
            handles,
            self._rounds,
            e_nodes,
            e_classes,
            self._notes,
            self._answers.refusals,
        )

    def _load(self) -> None:
        rows = self._program_rows()
        for relation, row in self._answers.facts():
            rows.setdefault(relation, []).append(row)
        for relation, row in self._names.take_new_rows():
            rows.setdefault(relation, []).append(row)
        self._database.load({relation: _unique(content) for relation, content in rows.items()})
        self._database.step("handles")
        self._database.step("load")

    def _program_rows(self) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {"row-ref": [(i,) for i in range(len(self._graph.nodes))]}
        lists: dict[tuple[int, ...], int] = {}
        for i, node in enumerate(self._graph.nodes):
            if node.kind == "op":
                self._add_op(i, node, rows, lists)
            elif node.kind == "get":
                rows.setdefault("row-get", []).append((i, node.index, node.inputs[0]))
            elif node.kind == "const":
                name = self._names.constant(Constant(node.name, node.var))
                rows.setdefault("row-const", []).append((i, name))
            else:
                rows.setdefault("row-param", []).append((i, node.name, self._names.row_major([node.type])))
        rows["row-list"] = [(i,) for i in lists.values()]
        rows["row-goal"] = sorted({(i, self._goal_format(i)) for i, _ in self._graph.goals})
        return rows

    def _add_op(self, i: int, node: Node, rows: dict[str, list[Row]], lists: dict[tuple[int, ...], int]) -> None:
        """An op; one that is several views, pads and crops in a row becomes as many, with handles of their own."""
        signature = self._signatures[node.signature]
        *first, last = self._answers.op_names(signature)
        inputs = node.inputs
        for name, part in zip(first, signature.parts, strict=False):
            ref = len(rows["row-ref"])
            rows["row-ref"].append((ref,))
            assert node.type is not None
            self._types_between[ref] = TensorType(part.result_shape, node.type.dtype)
            rows.setdefault("row-op", []).append((ref, name, _list_id(lists, inputs, rows)))
            inputs = (ref,)
        rows.setdefault("row-op", []).append((i, last, _list_id(lists, inputs, rows)))

    def _goal_format(self, i: int) -> str:
        return self._names.row_major(self._graph.value_types(i, self._signatures))

    def _phase(self, ruleset: str) -> None:
        """Saturates and answers until no new question is asked."""
        for _ in range(MAX_ROUNDS):
            self._database.saturate(ruleset)
            rows = self._answer_all()
            self._rounds += 1
            if not rows:
                return
            self._database.load(rows)
        self._notes.append(f"the rules still asked new questions after {MAX_ROUNDS} rounds of phase {ruleset!r}")

    def _answer_all(self) -> dict[str, list[Row]]:
        """Answers every question not asked before, in sorted order, so that names do not depend on hashing."""
        tables = self._database.tables()
        rows: dict[str, dict[Row, None]] = {}
        for table in tables.names:
            if not table.startswith("ask-") or not tables.size(table):
                continue
            answer = self._answer_function(table)
            known = self._asked.setdefault(table, set())
            for question in sorted(set(tables.rows(table)) - known):
                known.add(question)
                for relation, row in answer(*question):
                    rows.setdefault(relation, {})[row] = None
        return {relation: list(content) for relation, content in rows.items()}

    def _answer_function(self, table: str) -> Callable[..., Any]:
        name = table.removeprefix("ask-")
        answer = getattr(self._answers, "answer_" + name.replace("-", "_"), None)
        if answer is None:
            raise RuleError(f"rules ask ({table} ...), but nothing answers {name!r}")
        return answer  # type: ignore[no-any-return]


def _list_id(lists: dict[tuple[int, ...], int], operands: tuple[int, ...], rows: dict[str, list[Row]]) -> int:
    """The handle of an operand list; tails are shared."""
    for start in range(len(operands), -1, -1):
        part = operands[start:]
        if part in lists:
            continue
        number = len(lists)
        if part:
            rows.setdefault("row-arg", []).append((number, part[0], lists[part[1:]]))
        else:
            rows.setdefault("row-end", []).append((number,))
        lists[part] = number
    return lists[operands]


def _unique(rows: Sequence[Row]) -> list[Row]:
    return list(dict.fromkeys(rows))
