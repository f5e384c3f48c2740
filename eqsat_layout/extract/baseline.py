"""What the input costs as it was written, under the same cost model.

In: a graph and its signatures. Out: modelled seconds and the layout rewrites of a run of the input, where every op that
is frozen to other layouts converts its operands and its result by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat_layout.extract.cost import CostModel
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType
from eqsat_layout.maps import Format


@dataclass(frozen=True)
class Rewrite:
    """A copy of a tensor from one format to another."""

    name: str
    type: TensorType
    before: Format
    after: Format


def baseline(graph: Graph, signatures: Mapping[str, Signature], costs: CostModel) -> tuple[float, list[Rewrite]]:
    """Cost of one run of the input, and its rewrites."""
    total = 0.0
    rewrites: list[Rewrite] = []
    for node in graph.nodes:
        if node.kind != "op":
            continue
        own = list(_rewrites(node, graph, signatures[node.signature]))
        total += sum(max(0.0, float(costs.convert(r.type, r.before, r.after))) for r in own)
        total += _run_cost(signatures[node.signature], costs)
        rewrites += own
    return total, rewrites


def _rewrites(node: Node, graph: Graph, signature: Signature) -> Iterator[Rewrite]:
    if signature.view is not None:
        (ty,) = signature.operands
        assert ty is not None
        if not signature.view.keeps_order:
            yield Rewrite(node.label, ty, Format.row_major(ty.shape), Format.make(signature.view))
        return
    if signature.frozen is None:
        return
    for i, fmt in zip(node.inputs, signature.frozen.operands, strict=True):
        source = graph.nodes[i]
        if source.kind != "const" and source.type is not None and not fmt.is_row_major:
            yield Rewrite(source.label, source.type, Format.row_major(source.type.shape), fmt)
    for ty, fmt in zip(signature.results, signature.frozen.results, strict=True):
        if ty is not None and not fmt.is_row_major:
            yield Rewrite(node.label, ty, fmt, Format.row_major(ty.shape))


def _run_cost(signature: Signature, costs: CostModel) -> float:
    if signature.view is not None:
        return 0.0
    if signature.frozen is not None:
        return costs.run(signature, signature.frozen.operands, signature.frozen.results)
    return costs.run(
        signature,
        [None if t is None else Format.row_major(t.shape) for t in signature.operands],
        [None if t is None else Format.row_major(t.shape) for t in signature.results],
    )
