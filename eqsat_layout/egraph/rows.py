"""A graph as rows of facts, for the relations that the rules load programs from.

In: a graph and the names of its ops. Out: rows by relation: ``row-op``, ``row-arg`` and so on for a program, and the
same under ``alt-`` for a graph that may replace an op.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_layout.egraph.answers import Answers
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.tables import Row
from eqsat_layout.graph.constants import Constant
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType
from eqsat_layout.implementations.offers import Alternative


class GraphRows:
    """The rows of one graph. ``types_between`` are those of the terms that no node stands for: parts of rewrites."""

    def __init__(self, graph: Graph, signatures: Mapping[str, Signature], answers: Answers, names: Names, prefix: str):
        self._graph, self._signatures = graph, signatures
        self._answers, self._names, self._prefix = answers, names, prefix
        self._lists: dict[tuple[int, ...], int] = {}
        self.refs = len(graph.nodes)
        self.types_between: dict[int, TensorType] = {}
        self.ops: list[Row] = []
        self.gets: list[Row] = []
        self.constants: list[Row] = []
        self.params: list[Row] = []
        self.args: list[Row] = []
        self.ends: list[Row] = []
        for i, node in enumerate(graph.nodes):
            self._add(i, node)

    @property
    def lists(self) -> list[int]:
        """Handles of the operand lists."""
        return list(self._lists.values())

    def _add(self, i: int, node: Node) -> None:
        if node.kind == "op":
            self._add_op(i, node)
        elif node.kind == "get":
            self.gets.append((i, node.index, node.inputs[0]))
        elif node.kind == "const":
            self.constants.append((i, self._names.constant(Constant(self._prefix + node.name, node.var))))
        else:
            self.params.append((i, node.name, self._names.row_major([node.type])))

    def _add_op(self, i: int, node: Node) -> None:
        """An op; one that is several views, pads and crops in a row becomes as many, with handles of their own."""
        signature = self._signatures[node.signature]
        *first, last = self._answers.op_names(signature)
        inputs = node.inputs
        for name, part in zip(first, signature.parts, strict=False):
            assert node.type is not None
            self.types_between[self.refs] = TensorType(part.result_shape, node.type.dtype)
            self.ops.append((self.refs, name, self._list(inputs)))
            inputs = (self.refs,)
            self.refs += 1
        self.ops.append((i, last, self._list(inputs)))

    def _list(self, operands: tuple[int, ...]) -> int:
        """The handle of an operand list; tails are shared."""
        for start in range(len(operands), -1, -1):
            part = operands[start:]
            if part in self._lists:
                continue
            number = len(self._lists)
            if part:
                self.args.append((number, part[0], self._lists[part[1:]]))
            else:
                self.ends.append((number,))
            self._lists[part] = number
        return self._lists[operands]


def alternative_rows(alternative: Alternative, rows: GraphRows) -> dict[str, list[Row]]:
    """The facts that build ``alternative`` wherever it may replace an op."""
    name = alternative.name
    return {
        "alt-param": [(name, n, i) for n, i in enumerate(alternative.params) if i is not None],
        "alt-const": [(name, *row) for row in rows.constants],
        "alt-op": [(name, *row) for row in rows.ops],
        "alt-get": [(name, *row) for row in rows.gets],
        "alt-arg": [(name, *row) for row in rows.args],
        "alt-end": [(name, *row) for row in rows.ends],
        "alt-result": [(name, alternative.result)],
    }


def single_op_rows(name: str, op: str, operands: int) -> dict[str, list[Row]]:
    """The facts that build one op, by the name that the e-graph has for it, over its operands as they are."""
    return {
        "alt-param": [(name, i, i) for i in range(operands)],
        "alt-end": [(name, 0)],
        "alt-arg": [(name, i + 1, operands - 1 - i, i) for i in range(operands)],
        "alt-op": [(name, operands, op, operands)],
        "alt-result": [(name, operands)],
    }
