"""Whether the data of an op can come in a layout that the op would have them in, at no cost.

In: the regions of a program, the layouts that are offered for its ops, and prices. Out: :class:`Incoming`, which is
asked before anything is planned, so that it looks at what gives the data and at what else reads them, and no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from eqsat_layout.cost.model import Roofline
from eqsat_layout.graph.graph import Graph, Node, Signature, TensorType
from eqsat_layout.implementations.layouts import Candidate
from eqsat_layout.maps import Format
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.flow import Flow, backward, complete, forward, is_in_step


@dataclass(frozen=True)
class _Wanted:
    """A value of a region (by their numbers) in a format."""

    graph: int
    value: int
    format: Format


@dataclass
class Incoming:
    """``signatures``: of ops that layouts flow through as they are analysed. ``offered``: the layouts of ops, by
    their keys."""

    graphs: Sequence[Graph]
    signatures: Mapping[str, Signature]
    offered: Mapping[str, Sequence[Candidate]]
    prices: Roofline
    _best: dict[str, Quickest] = field(default_factory=dict)
    _free: set[_Wanted] = field(default_factory=set)

    def is_free(self, key: str, operand: int, fmt: Format) -> bool:
        """Wherever the op stands, that operand may be made in ``fmt`` by what makes it, and read so by all that read
        it, each as fast as in any other layout."""
        nodes = ((number, node) for number, graph in enumerate(self.graphs) for node in graph.nodes)
        left = {_Wanted(number, node.inputs[operand], fmt) for number, node in nodes if node.signature == key}
        left -= self._free
        asked = set(left)
        while left:
            before = self._before(left.pop())
            if before is None:
                return False
            left |= before - asked - self._free
            asked |= before
        self._free |= asked
        return True

    def _before(self, wanted: _Wanted) -> set[_Wanted] | None:
        """What has to be free for it to be so; None where it is not."""
        graph, value, fmt = self.graphs[wanted.graph], wanted.value, wanted.format
        node = graph.nodes[value]
        if value in self._constants[wanted.graph]:
            return set()
        users = self._users[wanted.graph].get(value, ())
        if value in self._results[wanted.graph] or not all(self._reads(user, at, fmt) for user, at in users):
            return None
        signature = self.signatures.get(node.signature)
        if signature is None or not signature.flows or signature.is_tuple:
            return None
        own = self.quickest(signature)
        made = [flow for flow in own.flows if flow.results[0] == fmt] or self._quick(
            signature, backward(_known(signature), 0, fmt, most=1)
        )
        if not made:
            return None
        asked = [
            (_Wanted(wanted.graph, i, f), ty)
            for i, f, ty in zip(node.inputs, made[0].operands, signature.operands, strict=True)
            if ty is not None and not f.is_row_major and i not in self._constants[wanted.graph]
        ]
        if own.gains > sum(self.prices.convert(ty, ty.row_major, one.format) for one, ty in asked):
            return set()  # it is worth to bring the operands to that layout
        by_the_way = is_in_step(_known(signature))
        return {one for one, ty in asked if not (by_the_way and self._is_moved_by_the_way(ty, one.format))}

    def _is_moved_by_the_way(self, ty: TensorType, fmt: Format) -> bool:
        return not self.prices.convert(ty, ty.row_major, fmt, fused=True)

    @cached_property
    def _users(self) -> Sequence[Mapping[int, Sequence[tuple[Node, int]]]]:
        """By region and value the nodes that read it, each with the number of the operand."""
        found: list[dict[int, list[tuple[Node, int]]]] = []
        for graph in self.graphs:
            found.append({})
            for node in graph.nodes:
                for at, value in enumerate(node.inputs):
                    found[-1].setdefault(value, []).append((node, at))
        return found

    @cached_property
    def _constants(self) -> Sequence[Set[int]]:
        """By region the values that are made of constants only: rules fold them."""
        found: list[set[int]] = []
        for graph in self.graphs:
            found.append(set())
            for value, node in enumerate(graph.nodes):
                if node.kind == "const" or (node.inputs and found[-1].issuperset(node.inputs)):
                    found[-1].add(value)
        return found

    @cached_property
    def _results(self) -> Sequence[Set[int]]:
        return [{value for value, _ in graph.goals} for graph in self.graphs]

    def _reads(self, node: Node, operand: int, fmt: Format) -> bool:
        signature = self.signatures.get(node.signature)
        if signature is None or not signature.flows:
            return False
        if any(flow.operands[operand] == fmt for flow in self.quickest(signature).flows):
            return True
        return bool(self._quick(signature, forward(_known(signature), operand, fmt)))

    def _quick(self, signature: Signature, flows: Iterable[Flow]) -> list[Flow]:
        """Those in which the op is as fast as in the best of its layouts."""
        least = self.quickest(signature).seconds
        return [flow for flow in flows if self._seconds(signature, flow) <= least]

    def quickest(self, signature: Signature) -> Quickest:
        """Of an op that layouts flow through: as it is written, and in each of the layouts that are offered for it."""
        if signature.key not in self._best:
            nothing = [None] * len(signature.operands), [None] * len(signature.results)
            written = complete(_known(signature), *nothing)
            flows = [written, *(candidate.flow for candidate in self.offered.get(signature.key, ()))]
            priced = [(self._seconds(signature, flow), flow) for flow in flows]
            least = min(seconds for seconds, _ in priced)
            best = [flow for seconds, flow in priced if seconds <= least]
            self._best[signature.key] = Quickest(least, best, priced[0][0] - least)
        return self._best[signature.key]

    def _seconds(self, signature: Signature, flow: Flow) -> float:
        return self.prices.run(signature, flow.operands, flow.results)


@dataclass(frozen=True)
class Quickest:
    """The ``seconds`` of an op in the best of its layouts, the ``flows`` in which it takes no longer, and what it
    ``gains`` by them over how it is written."""

    seconds: float
    flows: Sequence[Flow]
    gains: float


def _known(signature: Signature) -> Computation:
    assert signature.computation is not None, "layouts flow only through what is understood"
    return signature.computation


__all__ = ["Incoming", "Quickest"]
