"""What the ops and layouts of a plan are called, and what ops were not offered.

In: a search. Out: names as a person knows them, and refusals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Signature
from eqsat_layout.implementations.algorithms import ALGORITHMS, convolution_of
from eqsat_layout.planning.search import Search
from eqsat_layout.report.layout_names import LayoutNames
from eqsat_layout.report.named_tensors import named_shapes
from eqsat_layout.report.records import Refusal
from eqsat_layout.tir.sized import sized

AT_RUN_TIME = "its sizes are known at run time only"
_NUMBER = re.compile(r"^f\d+_")
"""What the functions of an algorithm's graph are told apart by."""


@dataclass(frozen=True)
class PlanNames:
    """Names what was planned in one search."""

    search: Search

    @cached_property
    def names(self) -> LayoutNames:
        """What layouts are called."""
        graphs = self.search.program.graphs
        used = {node.signature for graph in graphs for node in graph.nodes if node.signature}
        signatures = self.search.program.signatures
        return LayoutNames.of((signatures[key] for key in sorted(used)), named_shapes(graphs, signatures))

    @cached_property
    def algorithms(self) -> Mapping[str, str]:
        """The algorithm that an op is part of, by the key of its signature."""
        found: dict[str, str] = {}
        for alternatives in self.search.offers.graphs.values():
            for alternative in alternatives:
                name = alternative.name.partition("@")[0]
                for node in alternative.graph.nodes:
                    found.setdefault(node.signature, name)
        return found

    def op_name(self, key: str) -> str:
        """What a person knows an op by: Relax's name without its dialect, or the PrimFunc's."""
        name = self.search.program.signatures[key].name.removeprefix("relax.")
        return _NUMBER.sub("", name) if key in self.algorithms else name

    def full_name(self, key: str) -> str:
        """The op's whole name, of a step of an algorithm with the algorithm in front."""
        name, algorithm = self.search.program.signatures[key].name, self.algorithms.get(key)
        return f"{algorithm}: {_NUMBER.sub('', name)}" if algorithm else name

    def how(self, signature: str, origin: str) -> str:
        """``origin``, and the algorithm that the op is a part of."""
        algorithm = self.algorithms.get(signature, "")
        return f"{algorithm}: {origin.removeprefix('part of an alternative, ')}" if algorithm else origin

    def not_offered(self) -> tuple[Refusal, ...]:
        """The algorithms that the convolutions of the program were not offered, and why."""
        signatures = self.search.program.signatures
        keys = {node.signature for graph in self.search.program.graphs for node in graph.nodes if node.signature}
        found = [refusal for key in sorted(keys) for refusal in self._not_offered(signatures[key])]
        return tuple(found)

    def not_held(self) -> tuple[Refusal, ...]:
        """What of the program's contractions can't lie in a memory that would suit it, and why."""
        signatures = self.search.program.signatures
        keys = {node.signature for graph in self.search.program.graphs for node in graph.nodes if node.signature}
        found: list[Refusal] = []
        for signature in (signatures[key] for key in sorted(keys)):
            computation = signature.computation
            if computation is None or not computation.is_contraction or signature.symbols:
                continue
            for buffer, fmt, reason in self.search.target.not_held(computation):
                is_result = buffer in computation.results
                number = (computation.results if is_result else computation.operands).index(buffer)
                side = f"{'result' if is_result else 'operand'} {number}"
                layout = self.names(fmt) if is_result else self.names.operand(signature, number, fmt)
                found.append(Refusal(self.full_name(signature.key), side, fmt.index_map, reason, layout))
        return tuple(found)

    def kept_back(self) -> Mapping[str, tuple[str, ...]]:
        """The algorithms that were not offered because sizes are symbols, by op."""
        found: dict[str, dict[str, None]] = {}
        has_symbols = any(graph.symbols for graph in self.search.program.graphs)
        for refusal in self.not_offered() if has_symbols else ():
            if refusal.reason == AT_RUN_TIME:
                found.setdefault(refusal.op, {})[refusal.layout] = None
        return {op: tuple(names) for op, names in found.items()}

    def _not_offered(self, signature: Signature) -> Iterator[Refusal]:
        computation, offers = signature.computation, self.search.offers
        if computation is None or not computation.is_contraction:
            return
        try:
            conv = convolution_of(sized(computation) if signature.symbols else computation)
        except LayoutError:  # nothing is known of what it would be
            return
        if conv is None:
            return
        offered = {alternative.name.partition("@")[0] for alternative in offers.graphs.get(signature.key, ())}
        slower = offers.slower.get(signature.key, {})
        theirs = {algorithm.name for algorithm in self.search.target.algorithms()}
        for algorithm in ALGORITHMS:
            if algorithm.name in offered or algorithm.grouped != (conv.groups > 1):
                continue
            reason = (
                algorithm.why_not(conv)
                or slower.get(algorithm.name)
                or (
                    "it is frozen to other layouts"
                    if signature.frozen is not None
                    else "the target, or approx=False, leaves it out"
                    if algorithm.name not in theirs
                    else AT_RUN_TIME
                    if signature.symbols
                    else "no candidates were asked for"
                    if not offers.graphs
                    else "its graph was not understood"
                )
            )
            yield Refusal(signature.name, "", None, reason, algorithm.name)
