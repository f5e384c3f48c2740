"""What the input costs as it was written, under the same cost model.

In: a graph and its signatures. Out: modelled seconds and the layout rewrites of a run of the input, where every op that
is frozen to other layouts converts its operands and its result by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat_layout.extract.cost import CostModel
from eqsat_layout.graph.borders import Border
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.maps import Format, IndexMap


@dataclass(frozen=True)
class Rewrite:
    """A copy of a tensor from one format to another."""

    name: str
    type: TensorType
    before: Format
    after: Format
    cost: float = 0.0


def baseline(graph: Graph, signatures: Mapping[str, Signature], costs: CostModel) -> tuple[float, list[Rewrite]]:
    """Cost of one run of the input, and its rewrites."""
    total = 0.0
    rewrites: list[Rewrite] = []
    known: dict[str, tuple[float, list[tuple[int, Rewrite]]]] = {}
    for node in graph.nodes:
        if node.kind != "op":
            continue
        if node.signature not in known:
            known[node.signature] = _cost(signatures[node.signature], costs)
        cost, own = known[node.signature]
        total += cost
        for operand, rewrite in own:
            source = node if operand < 0 else graph.nodes[node.inputs[operand]]
            if operand < 0 or source.kind != "const":  # constants are laid out when compiling
                rewrites.append(replace(rewrite, name=source.label))
                total += rewrite.cost
    return total, rewrites


def _cost(signature: Signature, costs: CostModel) -> tuple[float, list[tuple[int, Rewrite]]]:
    """What one run of an op costs, and the rewrites of its operands (by number) and of its result (-1)."""
    rewrites = list(_rewrites(signature))
    priced = [(i, replace(r, cost=max(0.0, float(costs.convert(r.type, r.before, r.after))))) for i, r in rewrites]
    return _run_cost(signature, costs), priced


def _rewrites(signature: Signature) -> Iterator[tuple[int, Rewrite]]:
    if signature.parts:
        yield from _own_rewrite(signature)
        return
    if signature.frozen is None:
        return
    for i, (ty, fmt) in enumerate(zip(signature.operands, signature.frozen.operands, strict=True)):
        if ty is not None and not fmt.is_row_major:
            yield i, Rewrite("", ty, Format.row_major(ty.shape), fmt)
    for ty, fmt in zip(signature.results, signature.frozen.results, strict=True):
        if ty is not None and not fmt.is_row_major:
            yield -1, Rewrite("", ty, fmt, Format.row_major(ty.shape))


def _own_rewrite(signature: Signature) -> Iterator[tuple[int, Rewrite]]:
    """The op is a rewrite itself: one copy, or nothing where only axes are regrouped."""
    (operand,), (result,) = signature.operands, signature.results
    assert operand is not None
    assert result is not None
    if signature.view is not None:
        if not signature.view.keeps_order:
            yield -1, Rewrite("", operand, Format.row_major(operand.shape), Format.make(signature.view))
        return
    borders = [part for part in signature.parts if isinstance(part, Border)]
    if not borders:  # maps that cut through each other's digits: one kernel all the same
        moving = [part for part in signature.parts if isinstance(part, IndexMap) and not part.keeps_order]
        for part in moving[:1]:
            ty = TensorType(part.shape, operand.dtype)
            yield -1, Rewrite("", ty, Format.row_major(part.shape), Format.make(part))
        return
    inner = TensorType(borders[0].shape, operand.dtype)
    paddings = [b.widths for b in borders]
    before = Format.row_major(inner.shape)
    after = Format.make(IndexMap.identity(borders[-1].wide_shape), padding=paddings[-1], fill=0.0)
    yield -1, Rewrite("", inner, before, after)


def _run_cost(signature: Signature, costs: CostModel) -> float:
    if signature.parts:
        return 0.0
    if signature.frozen is not None:
        return costs.run(signature, signature.frozen.operands, signature.frozen.results)
    return costs.run(
        signature,
        [None if t is None else Format.row_major(t.shape) for t in signature.operands],
        [None if t is None else Format.row_major(t.shape) for t in signature.results],
    )
