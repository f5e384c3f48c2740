"""Layouts in which the build makes one kernel of ops that it would run one by one in the layouts that cost least.

In: a choice. Out: the same, or another one that costs less as built. Extraction adds up ops one by one, and so can't
know what joining saves: that is known of whole kernels, and asking a target takes as long as planning. So another plan
is looked for only where contractions that follow each other lie so that the target can't join them; it is extracted
with what joining may save taken off, and the target is asked about both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.makers import Made
from eqsat_layout.extract.region import IMPROVEMENT, Region
from eqsat_layout.extract.solved import solved
from eqsat_layout.extract.solver.problem import ENode, Problem, cost_of
from eqsat_layout.graph.graph import Node
from eqsat_layout.maps import Format, Formats
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.search import Search
from eqsat_layout.report.figures import format_seconds

_SAVED: Final = 0.25
"""Of the time of kernels that are joined, about, is saved: to look for a plan by, and not to choose it by."""


def with_joins(choice: Choice) -> Choice:
    """``choice``, or the one that costs less as it is built."""
    search = choice.search
    found = [_Neighbours(region, search).joined() for region in choice.regions]
    if not any(found):
        return choice
    with search.clock.stage("join"):
        other = replace(choice, regions=[new or old for new, old in zip(found, choice.regions, strict=True)])
        mine, theirs = choice.built.cost, other.built.cost
    if theirs >= mine * (1 - IMPROVEMENT):
        return choice
    one_by_one = sum(region.cost for region in other.regions) - sum(region.cost for region in choice.regions)
    search.program.notes.append(
        f"in some layouts that cost {format_seconds(one_by_one)} more one by one, ops become one kernel: as built, "
        f"these cost {format_seconds(theirs)} in all, and the others {format_seconds(mine)}"
    )
    return other


@dataclass(frozen=True)
class _Pair:
    """The tensors that two contractions make; ``operand``: of the second, what is made of the first."""

    first: int
    last: int
    operand: int


@dataclass(frozen=True)
class _Neighbours:
    """Contractions of a region that follow each other, with nothing but elementwise ops between."""

    region: Region
    search: Search

    def joined(self) -> Region | None:
        """The region in layouts in which more of them may be joined; ``None`` where nothing speaks for such."""
        chosen = self._chosen
        apart = [p for p in self._pairs() if not (self._joins(chosen[p.first]) and self._joins(chosen[p.last]))]
        if not apart:
            return None
        region, problem = self.region, self.region.selection.problem
        cheaper = self._cheaper(apart)
        if cheaper == problem:
            return None  # of no pair, both can be joined
        found = solved(region.selection, cheaper, self.search.time_limit)
        if (found.made, found.source) == (region.solution.made, region.solution.source):
            return None
        cost = cost_of(problem, found.made, found.source)
        solution = replace(found, cost=cost, lower_bound=min(cost, region.solution.lower_bound))
        decoder = Decoder(region.selection, solution)
        return replace(region, solution=solution, decoder=decoder, steps=decoder.run(), is_joined=True)

    def _pairs(self) -> Iterator[_Pair]:
        """Nothing else needs what the first one makes, and both are run as the program says, in whatever layouts."""
        users: dict[int, set[Hashable]] = {}
        tensors, graph = self.region.selection.tensors.of_node, self.region.graph
        for tensor, node in zip(tensors, graph.nodes, strict=True):
            for source in node.inputs:
                users.setdefault(tensors[source], set()).add(tensor)
        for goal, _ in graph.goals:
            users.setdefault(tensors[goal], set()).add("outside")
        for tensor, node in self._makers.items():
            read = [tensors[i] for i in node.inputs] if tensor in self._chosen else []
            for operand, source in enumerate(read):
                first = self._anchor(source) if users[source] == {tensor} and source != tensor else None
                if first is not None and first in self._chosen:
                    yield _Pair(first, tensor, operand)

    def _anchor(self, tensor: int) -> int | None:
        """What the contraction makes whose kernel goes on to ``tensor``."""
        tensors, edges = self.region.selection.tensors.of_node, self.region.selection.fusion.edges
        for _ in self._makers:
            node = self._makers.get(tensor)
            if node is None or self._is_contraction(node):
                return None if node is None else tensor
            before = {tensors[i] for i in node.inputs if (tensors[i], tensor) in edges}
            if len(before) != 1:
                return None
            (tensor,) = before
        return None

    @cached_property
    def _makers(self) -> Mapping[int, Node]:
        found: dict[int, Node] = {}
        for tensor, node in zip(self.region.selection.tensors.of_node, self.region.graph.nodes, strict=True):
            if node.kind == "op":
                found.setdefault(tensor, node)
        return found

    def _is_contraction(self, node: Node) -> bool:
        computation = self.search.program.signatures[node.signature].computation
        return computation is not None and computation.is_contraction

    @cached_property
    def _chosen(self) -> Mapping[int, str]:
        """By tensor how the contraction is run that makes it, if it is one, and not another algorithm."""
        selection, found = self.region.selection, {}
        for (number, store), index in self.region.solution.made.items():
            variant = self._variant(selection.labels[number][store][index]) if number < len(selection.labels) else ""
            for tensor, _ in selection.stores[number][store] if variant else ():
                if self._is_own(tensor, variant):
                    found[tensor] = variant
        return found

    def _is_own(self, tensor: int, variant: str) -> bool:
        node, variants = self._makers.get(tensor), self.region.saturated.names.variants
        return node is not None and self._is_contraction(node) and variants[variant].signature == node.signature

    @staticmethod
    def _variant(made: Made) -> str:
        return str(made[1][0]) if made[0].startswith("run") else ""

    def _joins(self, variant: str) -> bool:
        names = self.region.saturated.names
        own = names.variants[variant]
        return self._may_join(
            own.signature, [names.formats.get(f) for f in own.operands], names.formats.get(own.result)
        )

    def _may_join(self, signature: str, operands: Formats, result: Format | None) -> bool:
        """Of one of several results nothing is known: the name of its format is a list."""
        own = self.search.program.signatures[signature]
        return self.search.target.joins(own, operands, [result] if len(own.results) == 1 else [None] * len(own.results))

    def _joins_in(self, pair: _Pair, tensor: int, variant: str) -> bool:
        """Both of a pair, of which ``tensor`` is made by ``variant``, and the other one in the layout that this has
        between them."""
        names = self.region.saturated.names
        own = names.variants[variant]
        node = self._makers[pair.last if tensor == pair.first else pair.first]
        operands: list[Format | None] = [None] * len(node.inputs)
        result = None
        if tensor == pair.first:
            operands[pair.operand] = names.formats.get(own.result)
        else:
            result = names.formats.get(own.operands[pair.operand])
        return self._joins(variant) and self._may_join(node.signature, operands, result)

    def _cheaper(self, apart: Sequence[_Pair]) -> Problem:
        """The problem in which contractions of pairs that may be joined cost less."""
        selection = self.region.selection
        classes = list(selection.problem.classes)
        pairs: dict[int, list[_Pair]] = {}
        for pair in apart:
            pairs.setdefault(pair.first, []).append(pair)
            pairs.setdefault(pair.last, []).append(pair)
        for number, (stores, labels) in enumerate(zip(selection.stores, selection.labels, strict=True)):
            own = {tensor: pairs[tensor] for specs in stores for tensor, _ in specs if tensor in pairs}
            if own:
                nodes = tuple(
                    tuple(self._discounted(*one, own) for one in zip(nodes, made, strict=True))
                    for nodes, made in zip(classes[number].nodes, labels, strict=True)
                )
                classes[number] = replace(classes[number], nodes=nodes)
        return replace(selection.problem, classes=tuple(classes))

    def _discounted(self, node: ENode, made: Made, pairs: Mapping[int, Sequence[_Pair]]) -> ENode:
        variant = self._variant(made)
        gains = bool(variant) and any(
            self._is_own(tensor, variant) and any(self._joins_in(pair, tensor, variant) for pair in own)
            for tensor, own in pairs.items()
        )
        return replace(node, cost=node.cost * (1 - _SAVED)) if gains else node
