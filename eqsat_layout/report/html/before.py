"""The program as it was written, as a picture: frozen ops with the transforms that they do by themselves.

In: a graph as it was read, its costs, and what becomes one kernel of it. Out: a :class:`Picture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel
from eqsat_layout.extract.baseline import run_cost
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType
from eqsat_layout.maps import Format
from eqsat_layout.report.html.picture import Drawing, Picture, PictureNode, buffer_bytes, shape_text, transform_node
from eqsat_layout.report.layout_names import LayoutNames


def picture_before(
    graph: Graph,
    signatures: Mapping[str, Signature],
    costs: CostModel,
    fusion: Fusion,
    names: LayoutNames,
    title: str = "",
) -> Picture:
    """``fusion``: by the numbers of nodes."""
    return _Before(graph, signatures, costs, fusion, Drawing(title or graph.function, names)).drawn()


class _Before:
    def __init__(
        self, graph: Graph, signatures: Mapping[str, Signature], costs: CostModel, fusion: Fusion, drawing: Drawing
    ):
        self._graph, self._signatures, self._costs, self._fusion = graph, signatures, costs, fusion
        self._drawing, self._names = drawing, drawing.names
        self._made: dict[int, int] = {}
        self._kernels = last_ops_of_kernels(graph, signatures, fusion)

    def drawn(self) -> Picture:
        graph = self._graph
        used = {n for node in graph.nodes for n in node.inputs} | {i for i, _ in graph.goals}
        for i, node in enumerate(graph.nodes):
            if node.kind == "get":
                self._made[i] = self._made[node.inputs[0]]
            elif node.kind == "param" and i in used:
                self._made[i] = self._drawing.given("parameter", node.label, node.type, i)
            elif node.kind == "op":
                self._made[i] = self._op(i, node, self._signatures[node.signature])
        self._drawing.results([(self._made.get(i), str(var.name), graph.nodes[i].type) for i, var in graph.goals])
        return self._drawing.done()

    def _op(self, i: int, node: Node, signature: Signature) -> int:
        result = node.type if node.type is not None else next((t for t in signature.results if t is not None), None)
        plain = [*signature.as_written[0], *signature.as_written[1]]
        formats = plain
        if signature.frozen is not None and not signature.parts:
            formats = [*signature.frozen.operands, *signature.frozen.results]
        count = len(signature.operands)
        moves = bool(signature.parts) and (signature.view is None or not signature.view.keeps_order)
        if moves and result and plain[0]:
            cost = self._costs.convert(result, plain[0], _view_format(signature))
        else:
            cost = run_cost(signature, self._costs, self._fusion.fused(i, node.inputs))
        box = PictureNode(
            kind="transform" if moves else "op",
            op=signature.name.removeprefix("relax."),
            label=node.label,
            layout=self._names(formats[count] if len(formats) > count else None),
            shape=shape_text(result),
            cost=cost,
            constants=tuple(buffer_bytes(self._graph.nodes[n].type) for n in node.inputs if self._is_const(n)),
            binding=i,
            kernel=self._kernels.get(i, -1),
            operands=self._names.operands(signature, formats[:count]),
            why="as written" if formats is plain else "frozen",
        )
        sources: list[tuple[int | None, int]] = []
        for n, ty, fmt, own in zip(node.inputs, signature.operands, formats, plain, strict=False):
            if self._is_const(n):
                continue
            source = self._made.get(n)
            if ty is not None and fmt is not None and own is not None and fmt != own:
                source = self._copy(source, n, ty, own, fmt)
            sources.append((source, buffer_bytes(ty)))
        number = self._drawing.node(box)
        for source, size in sources:
            self._drawing.edge(source, number, size)
        after = formats[count] if len(formats) > count else None
        if result is not None and after is not None and formats is not plain and after != plain[count]:
            number = self._copy(number, i, result, after, result.row_major)
        return number

    def _copy(self, source: int | None, node: int, ty: TensorType, before: Format, after: Format) -> int:
        cost = self._costs.convert(ty, before, after)
        box = transform_node(self._names, self._graph.nodes[node].label, ty, (before, after), cost)
        return self._drawing.copy(source, ty, before, after, replace(box, why="done by the frozen op"))

    def _is_const(self, node: int) -> bool:
        return self._graph.nodes[node].kind == "const"


def last_ops_of_kernels(graph: Graph, signatures: Mapping[str, Signature], fusion: Fusion) -> dict[int, int]:
    """Each op with the last op of its kernel; what does transforms of its own is one by itself."""
    moved = {i for i, n in enumerate(graph.nodes) if n.kind == "op" and signatures[n.signature].is_moved}
    users = {source: user for source, user in fusion.edges if source not in moved and user not in moved}
    last: dict[int, int] = {}
    for i in reversed(range(len(graph.nodes))):
        if graph.nodes[i].kind == "op":
            user = users.get(i)
            last[i] = last.get(user, i) if isinstance(user, int) else i
    return last


def _view_format(signature: Signature) -> Format:
    (operand,) = signature.operands
    assert operand is not None
    return Format.make(signature.view) if signature.view is not None else operand.row_major
