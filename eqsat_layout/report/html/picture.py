"""A program as a picture: its ops, the layouts of their results, and what every edge moves.

In: a graph as it was read, or the steps of a plan. Out: plain data (:class:`Picture`) that a renderer draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat_layout.cost.model import CostModel, dtype_bytes
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, Part, Run, Steps
from eqsat_layout.maps import UNDEF, Format, IndexMap

_LETTERS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class PictureNode:
    """A box. ``kind``: ``parameter``, ``op``, ``transform`` or ``result``; ``cost`` in modelled seconds.

    ``constants`` are the bytes of each constant that it reads; ``remark`` is shown when the box is pointed at.
    """

    kind: str
    op: str
    label: str
    layout: str
    shape: str
    cost: float
    constants: tuple[int, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class PictureEdge:
    """A tensor that goes from node number ``source`` to ``target``; ``bytes`` of its buffer."""

    source: int
    target: int
    bytes: int


@dataclass(frozen=True)
class Picture:
    """One region. Edges lead from earlier nodes to later ones."""

    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]


def layout_name(fmt: Format | None) -> str:
    """A short name: ``NCHW16c`` for tensors of rank 3 to 5, letters from A for others, the index map where none fits.

    Axes of extent 1 that the map drops are written where they were.
    """
    if fmt is None:
        return ""
    letters = _LETTERS.get(len(fmt.shape)) or "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(fmt.shape)]
    parts = [_part(fmt.index_map, dim, letters) for dim in range(len(fmt.index_map.dims))]
    if len(letters) < len(fmt.shape) or None in parts:
        return str(fmt.index_map)
    kept = {digit.axis for digits in fmt.index_map.dims for digit in digits}
    units = iter([letter for axis, letter in enumerate(letters) if axis not in kept])
    text = "".join(part or next(units, "1") for part in parts if part is not None)
    fill = "" if fmt.fill is None else " +?" if fmt.fill is UNDEF else f" +{fmt.fill:g}"
    return text + fill


def _part(index_map: IndexMap, dim: int, letters: str) -> str | None:
    """One physical axis: a letter for (what is left of) an axis, a block size and a letter; "" for a unit axis."""
    digits = index_map.dims[dim]
    if len(digits) > 1:
        return None
    for axis, stride, extent in digits:
        whole = index_map.shape[axis]
        is_top = extent == whole or (isinstance(whole, int) and isinstance(extent, int) and stride * extent == whole)
        return letters[axis] if is_top else f"{extent}{letters[axis].lower()}"
    return ""


class _Drawing:
    def __init__(self, title: str):
        self._title = title
        self._nodes: list[PictureNode] = []
        self._edges: list[PictureEdge] = []

    def node(self, node: PictureNode) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def edge(self, source: int | None, target: int, size: int) -> None:
        if source is not None:
            self._edges.append(PictureEdge(source, target, size))

    def done(self) -> Picture:
        return Picture(self._title, tuple(self._nodes), tuple(dict.fromkeys(self._edges)))


def picture_before(graph: Graph, signatures: Mapping[str, Signature], costs: CostModel) -> Picture:
    """The input: frozen ops with the transforms that they do by themselves."""
    drawing = _Drawing(graph.function)
    made: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        if node.kind == "get":
            made[i] = made[node.inputs[0]]
        elif node.kind == "param" and (any(i in n.inputs for n in graph.nodes) or any(i == g for g, _ in graph.goals)):
            plain = None if node.type is None else node.type.row_major
            made[i] = drawing.node(
                PictureNode("parameter", "parameter", node.label, layout_name(plain), _shape(node.type), 0.0)
            )
        elif node.kind == "op":
            made[i] = _draw_op(drawing, graph, i, signatures[node.signature], costs, made)
    _draw_results(drawing, [(made.get(i), str(var.name), graph.nodes[i].type) for i, var in graph.goals])
    return drawing.done()


def _draw_op(
    drawing: _Drawing, graph: Graph, i: int, signature: Signature, costs: CostModel, made: Mapping[int, int]
) -> int:
    node = graph.nodes[i]
    name = signature.name.removeprefix("relax.")
    result = node.type if node.type is not None else next((t for t in signature.results if t is not None), None)
    plain = [None if t is None else Format.row_major(t.shape) for t in (*signature.operands, *signature.results)]
    formats = plain
    if signature.frozen is not None:
        formats = [*signature.frozen.operands, *signature.frozen.results]
    count = len(signature.operands)
    constants = tuple(_size(graph.nodes[n].type) for n in node.inputs if graph.nodes[n].kind == "const")
    if signature.parts:
        moves = signature.view is None or not signature.view.keeps_order
        cost = costs.convert(result, plain[0], _view_format(signature)) if moves and result and plain[0] else 0.0
        kind = "transform" if moves else "op"
        box = PictureNode(kind, name, node.label, layout_name(plain[-1]), _shape(result), cost, constants)
    else:
        cost = costs.run(signature, formats[:count], formats[count:])
        box = PictureNode("op", name, node.label, layout_name(formats[count]), _shape(result), cost, constants)
    sources: list[tuple[int | None, int]] = []
    for n, ty, fmt, own in zip(node.inputs, signature.operands, formats, plain, strict=False):
        if graph.nodes[n].kind == "const":
            continue
        source = made.get(n)
        if ty is not None and fmt is not None and own is not None and not fmt.is_row_major and not signature.parts:
            source = _draw_copy(drawing, source, graph.nodes[n].label, ty, own, fmt, costs.convert(ty, own, fmt))
        sources.append((source, _size(ty)))
    number = drawing.node(box)
    for source, size in sources:
        drawing.edge(source, number, size)
    after = formats[count] if len(formats) > count else None
    if result is not None and after is not None and not after.is_row_major and not signature.parts:
        back = result.row_major
        number = _draw_copy(drawing, number, node.label, result, after, back, costs.convert(result, after, back))
    return number


def _view_format(signature: Signature) -> Format:
    (operand,) = signature.operands
    assert operand is not None
    return Format.make(signature.view) if signature.view is not None else operand.row_major


def _draw_copy(
    drawing: _Drawing,
    source: int | None,
    label: str,
    ty: TensorType,
    before: Format,
    after: Format,
    cost: float,
    remark: str = "",
) -> int:
    text = f"{layout_name(before)} → {layout_name(after)}"
    number = drawing.node(PictureNode("transform", text, label, layout_name(after), _shape(ty), cost, (), remark))
    drawing.edge(source, number, _size(ty, before))
    return number


def picture_after(
    graph: Graph,
    steps: Steps,
    signatures: Mapping[str, Signature],
    costs: Mapping[int, float],
    remarks: Mapping[int, str],
) -> Picture:
    """The plan. ``costs`` and ``remarks`` are by the stores of the steps."""
    return _StepsReader(graph, steps, signatures, costs, remarks).drawn()


class _StepsReader:
    def __init__(
        self,
        graph: Graph,
        steps: Steps,
        signatures: Mapping[str, Signature],
        costs: Mapping[int, float],
        remarks: Mapping[int, str],
    ):
        self._graph, self._steps, self._signatures = graph, steps, signatures
        self._costs, self._remarks = costs, remarks
        self._drawing = _Drawing(graph.function)
        self._made: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def drawn(self) -> Picture:
        for step in self._steps.steps:
            if isinstance(step, Given):
                self._given(step)
            elif isinstance(step, Run):
                self._run(step)
            elif isinstance(step, Part | Inside) or step.before.serves_as(step.after):
                self._same(step.store, step.source)
            else:
                self._copy(step)
        goals = zip(self._graph.goals, self._steps.goals, strict=True)
        results = [(self._node_of(operand), str(var.name), self._graph.nodes[i].type) for (i, var), operand in goals]
        _draw_results(self._drawing, results)
        return self._drawing.done()

    def _given(self, step: Given) -> None:
        node = self._graph.nodes[step.node]
        plain = None if node.type is None else node.type.row_major
        box = PictureNode("parameter", "parameter", node.label, layout_name(plain), _shape(node.type), 0.0)
        self._define(step.store, self._drawing.node(box), _size(node.type))

    def _run(self, step: Run) -> None:
        signature = self._signatures[step.signature]
        result = next((t for t in signature.results if t is not None), None)
        fmt = None if result is None else result.row_major
        if step.flow is not None:
            fmt = step.flow.results[0]
        constants = tuple(
            int(o.format.elements() * dtype_bytes(o.constant.dtype))
            for o in step.operands
            if isinstance(o, ConstantUse)
        )
        box = PictureNode(
            "op",
            signature.name.removeprefix("relax."),
            self._label(step.store),
            layout_name(fmt),
            _shape(result),
            self._costs.get(step.store, 0.0),
            constants,
            self._remarks.get(step.store, ""),
        )
        number = self._drawing.node(box)
        for operand in step.operands:
            if isinstance(operand, int):
                self._drawing.edge(self._made.get(operand), number, self._sizes.get(operand, 0))
        self._define(step.store, number, _size(result, fmt))

    def _copy(self, step: Convert) -> None:
        number = _draw_copy(
            self._drawing,
            self._made.get(step.source),
            self._label(step.store),
            step.type,
            step.before,
            step.after,
            self._costs.get(step.store, 0.0),
            self._remarks.get(step.store, ""),
        )
        self._define(step.store, number, _size(step.type, step.after))

    def _same(self, store: int, source: Operand) -> None:
        if isinstance(source, int) and source in self._made:
            self._define(store, self._made[source], self._sizes.get(source, 0))

    def _define(self, store: int, number: int, size: int) -> None:
        self._made[store], self._sizes[store] = number, size

    def _node_of(self, operand: Operand) -> int | None:
        return self._made.get(operand) if isinstance(operand, int) else None

    def _label(self, store: int) -> str:
        node = self._steps.origins.get(store, -1)
        return self._graph.nodes[node].label if node >= 0 else ""


def _draw_results(drawing: _Drawing, results: Sequence[tuple[int | None, str, TensorType | None]]) -> None:
    for source, name, ty in results:
        plain = None if ty is None else ty.row_major
        number = drawing.node(PictureNode("result", "result", name, layout_name(plain), _shape(ty), 0.0))
        drawing.edge(source, number, _size(ty))


def _shape(ty: TensorType | None) -> str:
    return "" if ty is None else "x".join(map(str, ty.shape)) + f" {ty.dtype}"


def _size(ty: TensorType | None, fmt: Format | None = None) -> int:
    if ty is None:
        return 0
    return int((fmt or ty.row_major).elements() * dtype_bytes(ty.dtype))
