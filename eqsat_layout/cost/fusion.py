"""Which ops end up in one kernel: what TVM's FuseOps makes of a graph, as far as costs depend on it.

In: a graph. Out: :class:`Fusion`: the tensors that stay in registers between two ops. A contraction takes elementwise
followers along, elementwise ops take each other, also through views of what they make; a group holds one contraction at
most, and a tensor that somebody else uses too is written to memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eqsat_layout.cost.model import RESULT
from eqsat_layout.graph.graph import Graph, Node, Signature
from eqsat_layout.tir.computation import Computation


@dataclass
class Fusion:
    """``edges``: (tensor, user) pairs that stay in registers. ``anchored``: results of groups with a contraction.

    ``elementwise``: for results of elementwise ops, the operands that are read element by element.
    """

    edges: set[tuple[Hashable, Hashable]] = field(default_factory=set)
    passed_on: set[Hashable] = field(default_factory=set)
    anchored: set[Hashable] = field(default_factory=set)
    elementwise: dict[Hashable, frozenset[int]] = field(default_factory=dict)

    def fused(self, result: Hashable, operands: Sequence[Hashable]) -> frozenset[int]:
        """What one run of the op that makes ``result`` has in registers, as :meth:`CostModel.run` is told."""
        found = {i for i, operand in enumerate(operands) if (operand, result) in self.edges}
        return frozenset(found | {RESULT} if result in self.passed_on else found)

    def absorbs(self, result: Hashable) -> bool:
        """A copy of ``result`` into another format is done by the kernel that makes it."""
        return result in self.elementwise and result not in self.anchored

    def reads_anyhow(self, result: Hashable, operand: int, tensor: Hashable) -> bool:
        """A copy of an operand into another format is done by the kernel that reads it."""
        return operand in self.elementwise.get(result, ()) and (tensor, result) not in self.edges


_OUTSIDE: Final = "outside"
_Kind = tuple[bool, frozenset[int] | None]
"""What :func:`_kind` tells of an op."""


def fusion_of(graph: Graph, signatures: Mapping[str, Signature], tensors: Sequence[Hashable]) -> Fusion:
    """The fusion of a graph whose node i makes ``tensors[i]``; nodes of equal tensors are one op.

    From the last op to the first: an op joins the group of its users if that is one, all of them elementwise or views.
    """
    users: dict[Hashable, dict[Hashable, None]] = {tensors[i]: {_OUTSIDE: None} for i, _ in graph.goals}
    kinds = {key: _kind(signature) for key, signature in signatures.items()}
    makers: dict[Hashable, Node] = {}
    for tensor, node in zip(tensors, graph.nodes, strict=True):
        for i in node.inputs:
            if tensors[i] != tensor:  # rules may have found that an op changes nothing
                users.setdefault(tensors[i], {})[tensor] = None
        if node.kind == "op":
            makers.setdefault(tensor, node)
    found = Fusion()
    group: dict[Hashable, Hashable] = {}
    anchored: set[Hashable] = set()
    behind: dict[Hashable, set[tuple[Hashable, Hashable]]] = {}  # edges of a view that holds if its operand joins, too
    follows = _followers(makers, tensors, kinds)
    with_followers: set[Hashable] = set()  # groups
    for tensor, node in reversed(makers.items()):
        is_contraction, operands = kinds[node.signature]
        is_view = signatures[node.signature].view is not None
        if operands is not None:
            found.elementwise[tensor] = operands
        group[tensor] = tensor
        joined = {group.get(user) for user in users.get(tensor, {})}
        if (is_view or is_contraction or operands is not None) and len(joined) == 1 and None not in joined:
            (own,) = joined
            read = all(
                user in behind
                or found.elementwise.get(user, frozenset())
                >= {i for i, n in enumerate(makers[user].inputs) if tensors[n] == tensor}
                for user in users[tensor]
            )
            views = [user for user in users[tensor] if user in behind]
            edges = {(tensor, user) for user in users[tensor]}.union(*(behind[view] for view in views))
            if read and is_view and own not in with_followers:
                group[tensor], behind[tensor] = own, edges
            elif (
                read and not is_view and not (is_contraction and own in anchored) and not (views and tensor in follows)
            ):
                group[tensor] = own
                found.passed_on.update(source for source, _ in edges)
                found.edges |= edges
        if is_contraction:
            anchored.add(group[tensor])
        if tensor in follows:
            with_followers.add(group[tensor])
    found.anchored = {tensor for tensor, own in group.items() if own in anchored}
    return found


def _followers(
    makers: Mapping[Hashable, Node], tensors: Sequence[Hashable], kinds: Mapping[str, _Kind]
) -> set[Hashable]:
    """Contractions and what may be computed with one: TVM lets no view follow these."""
    found: set[Hashable] = set()
    for tensor, node in makers.items():
        is_contraction, operands = kinds[node.signature]
        if is_contraction or any(tensors[node.inputs[i]] in found for i in operands or ()):
            found.add(tensor)
    return found


def _kind(signature: Signature) -> _Kind:
    """Whether the op is a contraction, and the operands that it reads element by element if it is elementwise."""
    computation = signature.computation
    return computation is not None and computation.is_contraction, _pointwise_operands(signature)


def _pointwise_operands(signature: Signature) -> frozenset[int] | None:
    """The operands that an elementwise op reads just where it writes; ``None`` for an op that is not elementwise."""
    computation = signature.computation
    if computation is None or signature.parts or len(computation.results) != 1 or not _is_elementwise(computation):
        return None
    shape = computation.buffers[computation.results[0]].shape
    return frozenset(
        i
        for i, number in enumerate(computation.operands)
        if computation.buffers[number].shape == shape and _reads_in_place(computation, number)
    )


def _is_elementwise(computation: Computation) -> bool:
    return all(
        len(block.stores) == 1
        and not block.inits
        and all(block.is_spatial(i) for i in range(len(block.iters)))
        and all(len(index.iters) <= 1 for read in block.reads for index in read.indices)
        for block in computation.blocks
    )


def _reads_in_place(computation: Computation, number: int) -> bool:
    reads = [(b, r) for b in computation.blocks for r in b.reads if r.buffer == number]
    return bool(reads) and all(r.indices == b.writes[0].indices for b, r in reads)
