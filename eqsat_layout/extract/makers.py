"""The ways to make a tensor in a format, with their costs.

In: the tables of a saturation and a cost model. Out: :class:`Makers`: nodes of the selection problem still without
their places in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel
from eqsat_layout.egraph.names import Variant
from eqsat_layout.egraph.operands import OperandLists
from eqsat_layout.extract.conversions import Spec
from eqsat_layout.extract.tensors import Tensors
from eqsat_layout.extract.tuple_parts import part_need
from eqsat_layout.graph.graph import Signature

Made = tuple[str, Any]
"""How a node makes its store: ("run", (variant, operand specs)), ("part", (index, spec)), ("inside", spec) or
("given", graph node). A run may bring copies along that its kernel does by the way: ("run-into", (variant, operand
specs, result spec before, after)) and ("run-from", (variant, operand specs, operand number, format needed))."""

_Run = tuple[int, str, str, tuple[Spec, ...], frozenset[int]]
"""A tensor and its format, the variant that makes it, what that reads, and what of it all stays in registers."""


class Makers:
    """``by_spec``: for a tensor in a format what makes it, cheapest first. ``parts``: the results of tuples."""

    def __init__(self, tensors: Tensors, signatures: Mapping[str, Signature], costs: CostModel, fusion: Fusion):
        self.tensors, self._signatures, self._costs = tensors, signatures, costs
        self._names = tensors.saturated.names
        self._fusion = fusion
        self.by_spec: dict[Spec, list[tuple[float, Made]]] = {}
        self.parts: dict[int, dict[int, int]] = {}
        self._run_costs: dict[tuple[str, frozenset[int]], float] = {}
        self._read()

    def _read(self) -> None:
        tables = self.tensors.saturated.tables
        operands = OperandLists(tables, self.tensors.number)
        runs: list[_Run] = []
        for y, fmt, key, args in tables.rows("run"):
            variant = self._names.variants[key]
            tensors = operands.of(args)
            tensor = self.tensors.number(y)
            if tensor in self.tensors.constants:
                continue
            reads = tuple(zip(tensors, variant.operands, strict=True))
            fused = self._fusion.fused(tensor, tensors)
            self._add((tensor, fmt), self._run_cost(key, fused), ("run", (key, reads)))
            runs.append((tensor, fmt, key, reads, fused))
        found: dict[tuple[int, str, int, int], None] = {}
        for z, fmt, index, y, formats in tables.rows("part"):
            assert self._names.lists[formats][index] == fmt, "the rule reads the format off the list"
            found[self.tensors.number(z), fmt, index, self.tensors.number(y)] = None
        for tensor, fmt, index, whole in found:
            self.parts.setdefault(whole, {})[index] = tensor
            self._add((tensor, fmt), 0.0, ("part", (index, (whole, part_need(index, fmt)))))
        for z, fmt, x, wide in tables.rows("inside"):
            whole_spec = self.tensors.number(x), wide
            if self.tensors.is_held(whole_spec):
                self._add((self.tensors.number(z), fmt), 0.0, ("inside", whole_spec))
        for y, fmt in tables.rows("given"):
            tensor = self.tensors.number(y)
            self._add((tensor, fmt), 0.0, ("given", self.tensors.param_node(tensor)))
        self._absorb_copies(runs)
        for makers in self.by_spec.values():
            if len(makers) > 1:
                makers.sort()  # names, not handles: the order is the same in every process

    def _absorb_copies(self, runs: Sequence[_Run]) -> None:
        """Copies that the kernel of an elementwise op does by the way, of its result and of one of its operands."""
        formats: dict[int, set[str]] = {}
        for tensor, fmt in self._wanted(runs):
            formats.setdefault(tensor, set()).add(fmt)
        costs: dict[Any, float] = {}
        for tensor, fmt, key, reads, fused in runs:
            if self._fusion.absorbs(tensor):
                for after in formats.get(tensor, ()):
                    made: Made = ("run-into", (key, reads, fmt, after))
                    self._add_absorbed(costs, (tensor, after), key, fused, (tensor, fmt, after), made)
            for i, (source, needed) in enumerate(reads):
                if source in self.tensors.constants or not self._fusion.reads_anyhow(tensor, i, source):
                    continue
                for given in formats.get(source, ()):
                    changed = (*reads[:i], (source, given), *reads[i + 1 :])
                    made = ("run-from", (key, changed, i, needed))
                    self._add_absorbed(costs, (tensor, fmt), key, fused, (source, given, needed), made)

    def _wanted(self, runs: Iterable[_Run]) -> Iterable[Spec]:
        """What is read or made anywhere, apart from constants."""
        specs = dict.fromkeys(spec for _, _, _, reads, _ in runs for spec in reads)
        specs |= dict.fromkeys((*self.by_spec, *self.tensors.goals))
        return (spec for spec in specs if spec[0] not in self.tensors.constants)

    def _add_absorbed(
        self,
        costs: dict[Any, float],
        spec: Spec,
        key: str,
        fused: frozenset[int],
        copy: tuple[int, str, str],
        made: Made,
    ) -> None:
        """``copy``: the tensor that the kernel copies by the way, and its formats before and after."""
        tensor, before, after = copy
        ty, source, target = self.tensors.types[tensor], self._names.formats.get(before), self._names.formats.get(after)
        if before == after or ty is None or source is None or target is None or source.serves_as(target):
            return
        question = (ty, before, after)
        if question not in costs:
            is_read = source.index_map.inverse() is not None
            costs[question] = (
                max(0.0, float(self._costs.convert(ty, source, target, fused=True))) if is_read else math.inf
            )
        if costs[question] < math.inf:
            self._add(spec, self._run_cost(key, fused) + costs[question], made)

    def _add(self, spec: Spec, cost: float, made: Made) -> None:
        if spec[0] not in self.tensors.constants and self.tensors.is_held(spec):
            self.by_spec.setdefault(spec, []).append((cost, made))

    def _run_cost(self, key: str, fused: frozenset[int]) -> float:
        found = self._run_costs.get((key, fused))
        if found is None:
            found = self._run_costs[key, fused] = self._new_run_cost(self._names.variants[key], fused)
        return found

    def _new_run_cost(self, variant: Variant, fused: frozenset[int]) -> float:
        signature = self._signatures[variant.signature]
        formats = self._names.formats
        results = self._names.lists.get(variant.result, (variant.result,))
        operands = [formats.get(f) for f in variant.operands]
        return self._costs.run(signature, operands, [formats.get(f) for f in results], fused=fused)


def reads_of(made: Made) -> tuple[Spec, ...]:
    """What a node reads."""
    kind, detail = made
    if kind.startswith("run"):
        return detail[1]  # type: ignore[no-any-return]
    if kind == "part":
        return (detail[1],)
    return (detail,) if kind == "inside" else ()
