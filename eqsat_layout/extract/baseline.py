"""What the input costs as it was written, under the same cost model.

In: a graph and its signatures. Out: modelled seconds and the layout rewrites of a run of the input, where every op that
is frozen to other layouts converts its operands and its result by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel
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


def as_written(signatures: Mapping[str, Signature]) -> dict[str, Signature]:
    """The signatures without the layouts that are only desired: what the program costs if nobody desires anything."""
    return {
        key: s if s.frozen is None or s.frozen.required else replace(s, frozen=None) for key, s in signatures.items()
    }


def baseline(
    graph: Graph, signatures: Mapping[str, Signature], costs: CostModel, fusion: Fusion
) -> tuple[float, list[Rewrite]]:
    """Cost of one run of the input, and its rewrites. Copies beside an elementwise op are done by its kernel.

    ``fusion``: what becomes one kernel, by the numbers of nodes.
    """
    prices = _Prices(signatures, costs)
    users = _users(graph)
    total = 0.0
    rewrites: list[Rewrite] = []
    for i, node in enumerate(graph.nodes):
        if node.kind != "op":
            continue
        total += prices.run(node.signature, fusion.fused(i, node.inputs))
        for operand, rewrite in prices.rewrites(node.signature):
            source = node.inputs[max(operand, 0)]
            if operand >= 0 and graph.nodes[source].kind == "const":  # constants are laid out when compiling
                continue
            is_own = bool(signatures[node.signature].parts)
            absorbed = (operand >= 0 or is_own) and fusion.absorbs(source) and users[source] == [i]
            if not absorbed and is_own and len(users[i]) == 1:
                reader = users[i][0]
                place = graph.nodes[reader].inputs.index(i) if reader >= 0 else -1
                absorbed = fusion.reads_anyhow(reader, place, i)
            label = graph.nodes[source].label if operand >= 0 else node.label
            rewrites.append(replace(rewrite, name=label))
            total += prices.copy(rewrite, absorbed)
    return total, rewrites


_OUTSIDE = -1


def _users(graph: Graph) -> list[list[int]]:
    """The distinct nodes that use each node; -1 stands for the outside."""
    users: list[list[int]] = [[] for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for source in dict.fromkeys(node.inputs):
            users[source].append(i)
    for i in dict.fromkeys(i for i, _ in graph.goals):
        users[i].append(_OUTSIDE)
    return users


class _Prices:
    """Costs as the model has them, each asked for once."""

    def __init__(self, signatures: Mapping[str, Signature], costs: CostModel):
        self._signatures, self._costs = signatures, costs
        self._rewrites: dict[str, list[tuple[int, Rewrite]]] = {}
        self._runs: dict[tuple[str, frozenset[int]], float] = {}
        self._copies: dict[tuple[TensorType, str, str, bool], float] = {}

    def rewrites(self, signature: str) -> list[tuple[int, Rewrite]]:
        """The rewrites of an op's operands (by number) and of its result (-1)."""
        if signature not in self._rewrites:
            self._rewrites[signature] = list(_rewrites(self._signatures[signature]))
        return self._rewrites[signature]

    def copy(self, rewrite: Rewrite, fused: bool) -> float:
        """One copy."""
        key = (rewrite.type, rewrite.before.key, rewrite.after.key, fused)
        if key not in self._copies:
            cost = self._costs.convert(rewrite.type, rewrite.before, rewrite.after, fused=fused)
            self._copies[key] = max(0.0, float(cost))
        return self._copies[key]

    def run(self, signature: str, fused: frozenset[int]) -> float:
        """One run of an op."""
        if (signature, fused) not in self._runs:
            self._runs[signature, fused] = run_cost(self._signatures[signature], self._costs, fused)
        return self._runs[signature, fused]


def _rewrites(signature: Signature) -> Iterator[tuple[int, Rewrite]]:
    if signature.parts:
        yield from _own_rewrite(signature)
        return
    if signature.frozen is None:
        return
    for i, (ty, fmt) in enumerate(zip(signature.operands, signature.frozen.operands, strict=True)):
        if ty is not None and not fmt.is_row_major:
            yield i, Rewrite("", ty, ty.row_major, fmt)
    for ty, fmt in zip(signature.results, signature.frozen.results, strict=True):
        if ty is not None and not fmt.is_row_major:
            yield -1, Rewrite("", ty, fmt, ty.row_major)


def _own_rewrite(signature: Signature) -> Iterator[tuple[int, Rewrite]]:
    """The op is a rewrite itself: one copy, or nothing where only axes are regrouped."""
    (operand,), (result,) = signature.operands, signature.results
    assert operand is not None
    assert result is not None
    if signature.view is not None:
        after = Format.make(signature.view, scope=result.scope, separators=result.separators)
        if not operand.row_major.serves_as(after):
            yield -1, Rewrite("", operand, operand.row_major, after)
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


def run_cost(signature: Signature, costs: CostModel, fused: frozenset[int]) -> float:
    """One run of an op in the layouts that it is frozen to or was written in, ``fused`` as :meth:`CostModel.run` says.

    What is a layout rewrite itself costs nothing here.
    """
    if signature.parts:
        return 0.0
    if signature.frozen is not None:
        return costs.run(signature, signature.frozen.operands, signature.frozen.results, fused=fused)
    return costs.run(signature, *signature.as_written, fused=fused)
