"""What :mod:`eqsat_layout.targets.cuda.join_attention` joins, as costs are told of it.

In: a graph and what epilogues are fused in it. Out: the same with the scores of attention in registers: from the
product that makes them over elementwise ops and a softmax to the product with the values. Whether a kernel takes it is
known only when it is built; what is said here is what ops compute.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.graph.graph import Graph, Node, Signature

_OUTSIDE = "outside"


def with_attention(
    found: Fusion, graph: Graph, signatures: Mapping[str, Signature], tensors: Sequence[Hashable]
) -> Fusion:
    """``found`` itself, with more edges. ``tensors[i]`` is what node i of the graph makes."""
    reader = _Reader(found, signatures, tensors)
    for tensor, node in zip(tensors, graph.nodes, strict=True):
        if node.kind == "op":
            reader.makers.setdefault(tensor, node)
        for operand in node.inputs:
            if tensors[operand] != tensor:  # rules may have found that an op changes nothing
                reader.users.setdefault(tensors[operand], set()).add(tensor)
    for goal, _ in graph.goals:
        reader.users.setdefault(tensors[goal], set()).add(_OUTSIDE)
    for tensor, node in reader.makers.items():
        if reader.is_product(node):
            for operand in node.inputs:
                line = reader.line(tensors[operand], has_softmax=False)
                found.edges.update(itertools.pairwise([*line, tensor]))
                found.passed_on.update(line)
    return found


@dataclass
class _Reader:
    found: Fusion
    signatures: Mapping[str, Signature]
    tensors: Sequence[Hashable]

    def __post_init__(self) -> None:
        self.makers: dict[Hashable, Node] = {}
        self.users: dict[Hashable, set[Hashable]] = {}

    def line(self, tensor: Hashable, *, has_softmax: bool) -> list[Hashable]:
        """The tensors from a product over a softmax to ``tensor``, each read by the next one only; else none."""
        node = self.makers.get(tensor)
        if node is None or len(self.users.get(tensor, ())) != 1:
            return []
        if self.is_product(node):
            return [tensor] if has_softmax else []
        elementwise = self.found.elementwise.get(tensor)
        is_softmax = elementwise is None and _is_softmax(self.signatures[node.signature])
        if elementwise is None and not is_softmax:
            return []
        for place, operand in enumerate(node.inputs):
            if self.tensors[operand] != tensor and (elementwise is None or place in elementwise):
                before = self.line(self.tensors[operand], has_softmax=has_softmax or is_softmax)
                if before:
                    return [*before, tensor]
        return []

    def is_product(self, node: Node) -> bool:
        computation = self.signatures[node.signature].computation
        return computation is not None and computation.is_contraction and len(computation.blocks) == 1


def _is_softmax(signature: Signature) -> bool:
    """Of one operand, as large as its result: it adds up powers, and divides by the sum."""
    computation = signature.computation
    if computation is None or len(computation.operands) != 1 or len(computation.results) != 1 or signature.parts:
        return False
    (shape,), (made,) = computation.shapes(computation.operands), computation.shapes(computation.results)
    done = {value.op for block in computation.blocks for store in block.stores for value in store.value.walk()}
    sums = [block for block in computation.blocks if block.inits and not block.is_contraction]
    return shape == made and bool(sums) and {"tirx.exp", "Div"} <= done
