"""Which tensors have the axes that a convolution names: those between which no reshape or transpose lies.

In: graphs and signatures. Out: the shapes of such tensors; others of the same rank, as those of attention beside the
one convolution of a vision transformer, have no letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eqsat_layout.graph.graph import Graph, Node, Signature
from eqsat_layout.maps import Extent
from eqsat_layout.report.layout_names import said_layout


def named_shapes(graphs: Iterable[Graph], signatures: Mapping[str, Signature]) -> frozenset[tuple[Extent, ...]]:
    """The shapes of the tensors whose axes have names."""
    return frozenset(shape for graph in graphs for shape in _named(graph, signatures))


def _named(graph: Graph, signatures: Mapping[str, Signature]) -> Iterator[tuple[Extent, ...]]:
    nodes = graph.nodes
    groups = list(range(len(nodes)))

    def group(i: int) -> int:
        while groups[i] != i:
            groups[i] = groups[groups[i]]
            i = groups[i]
        return i

    speaking: list[int] = []
    for i, node in enumerate(nodes):
        if node.kind == "get":
            groups[group(i)] = group(node.inputs[0])
        elif node.kind == "op":
            signature = signatures[node.signature]
            if said_layout(signature):
                speaking.append(i)
            for source in _alike(graph, node, signature):
                groups[group(source)] = group(i)
    named = {group(i) for i in speaking}
    for i, node in enumerate(nodes):
        if group(i) in named and node.type is not None:
            yield node.type.shape


def _alike(graph: Graph, node: Node, signature: Signature) -> Iterator[int]:
    """The operands whose axes are those of the result."""
    if signature.view is not None:
        return
    result = node.type or next((t for t in signature.results if t is not None), None)
    own = signature.computation
    operands = node.inputs[:1] if own is not None and own.is_contraction else node.inputs
    for source in operands:
        ty = graph.nodes[source].type
        if ty is not None and result is not None and len(ty.shape) == len(result.shape):
            yield source
