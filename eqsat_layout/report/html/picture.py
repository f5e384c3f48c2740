"""A program as a picture: its ops, the layouts of their results, what every edge moves, and what is one kernel.

In: what is drawn, piece by piece. Out: plain data (:class:`Picture`) that the page draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Format
from eqsat_layout.report.layout_names import LayoutNames


@dataclass(frozen=True)
class PictureWay:
    """A way there was to make the same: what does it, in which layout, for how many modelled seconds of its own."""

    how: str
    layout: str
    cost: float


@dataclass(frozen=True)
class PictureNode:
    """An op. ``kind``: ``parameter``, ``op``, ``transform`` or ``result``; ``cost`` in modelled seconds.

    ``label`` is the name that a person knows it by, ``binding`` the number of the binding of the program as it was
    written that it stands for, -1 for none: the same before and after. Nodes of one ``kernel`` are computed together.
    ``constants`` are the bytes of each constant that it reads, ``operands`` the layouts that it reads.
    """

    kind: str
    op: str
    label: str
    layout: str
    shape: str
    cost: float
    constants: tuple[int, ...] = ()
    binding: int = -1
    kernel: int = -1
    operands: tuple[str, ...] = ()
    why: str = ""
    rules: tuple[str, ...] = ()
    ways: tuple[PictureWay, ...] = ()


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


class Drawing:
    """A picture in the making."""

    def __init__(self, title: str, names: LayoutNames):
        self.names = names
        self._title = title
        self._nodes: list[PictureNode] = []
        self._edges: list[PictureEdge] = []

    def node(self, node: PictureNode) -> int:
        """Its number."""
        self._nodes.append(node)
        return len(self._nodes) - 1

    def edge(self, source: int | None, target: int, size: int) -> None:
        """Nothing where there is no source: a constant."""
        if source is not None:
            self._edges.append(PictureEdge(source, target, size))

    def given(self, kind: str, label: str, ty: TensorType | None, binding: int = -1) -> int:
        """A ``parameter`` or a ``result``."""
        layout = "" if ty is None else self.names(ty.row_major)
        return self.node(PictureNode(kind, kind, label, layout, shape_text(ty), 0.0, binding=binding))

    def results(self, results: Sequence[tuple[int | None, str, TensorType | None]]) -> None:
        """What the outside gets: the nodes that make it, names, types."""
        for source, name, ty in results:
            self.edge(source, self.given("result", name, ty), buffer_bytes(ty))

    def copy(self, source: int | None, ty: TensorType, before: Format, after: Format, node: PictureNode) -> int:
        """A layout transform that ``node`` says the rest of."""
        number = self.node(node)
        self.edge(source, number, buffer_bytes(ty, before))
        return number

    def done(self) -> Picture:
        """The picture."""
        return Picture(self._title, tuple(self._nodes), tuple(dict.fromkeys(self._edges)))


def transform_node(
    names: LayoutNames, label: str, ty: TensorType, formats: tuple[Format, Format], cost: float
) -> PictureNode:
    """The node of a copy from one format to another."""
    before, after = map(names, formats)
    text = f"{before} → {after}"
    return PictureNode(
        "transform",
        text,
        label,
        after,
        shape_text(ty),
        cost,
        operands=(before,),
        why="layout transform",
    )


def shape_text(ty: TensorType | None) -> str:
    """``1x64x56x56 float32``."""
    return "" if ty is None else "x".join(map(str, ty.shape)) + f" {ty.dtype}"


def buffer_bytes(ty: TensorType | None, fmt: Format | None = None) -> int:
    """Bytes of a buffer."""
    if ty is None:
        return 0
    return int((fmt or ty.row_major).elements() * dtype_bytes(ty.dtype))
