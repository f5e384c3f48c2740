"""The plan as a picture.

In: the steps of a plan, with costs, kernels and reasons by their stores. Out: a :class:`Picture`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from eqsat_layout.cost.model import dtype_bytes
from eqsat_layout.graph.graph import Graph, Signature
from eqsat_layout.graph.steps import ConstantUse, Convert, Given, Inside, Operand, ResultPart, Run, Steps
from eqsat_layout.report.html.picture import (
    Drawing,
    Picture,
    PictureNode,
    PictureWay,
    buffer_bytes,
    shape_text,
    transform_node,
)
from eqsat_layout.report.layout_names import LayoutNames


@dataclass(frozen=True)
class StepReason:
    """Why an op is run so: in words, by which rules, and what there was beside."""

    why: str = ""
    rules: tuple[str, ...] = ()
    ways: tuple[PictureWay, ...] = ()


@dataclass(frozen=True)
class StepFacts:
    """What is known of steps, by their stores. ``kernels``: the last op of the kernel that each is part of.

    ``bindings``: the binding of the program that a step makes the value of, ``owners``: that it is done for.
    ``op_name``: of signatures, what a person knows them by.
    """

    costs: Mapping[int, float]
    kernels: Mapping[int, int]
    reasons: Mapping[int, StepReason]
    bindings: Mapping[int, int]
    owners: Mapping[int, int]
    op_name: Callable[[str], str]


def picture_after(
    graph: Graph,
    steps: Steps,
    signatures: Mapping[str, Signature],
    facts: StepFacts,
    names: LayoutNames,
    title: str = "",
) -> Picture:
    """The plan."""
    return _After(graph, steps, signatures, facts, Drawing(title or graph.function, names)).drawn()


class _After:
    def __init__(
        self, graph: Graph, steps: Steps, signatures: Mapping[str, Signature], facts: StepFacts, drawing: Drawing
    ):
        self._graph, self._steps, self._signatures, self._facts = graph, steps, signatures, facts
        self._drawing, self._names = drawing, drawing.names
        self._made: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def drawn(self) -> Picture:
        for step in self._steps.steps:
            if isinstance(step, Given):
                node = self._graph.nodes[step.node]
                number = self._drawing.given("parameter", node.label, node.type, step.node)
                self._define(step.store, number, buffer_bytes(node.type))
            elif isinstance(step, Run):
                self._run(step)
            elif isinstance(step, ResultPart | Inside) or step.is_free:
                self._same(step.store, step.source)
            else:
                self._copy(step)
        goals = zip(self._graph.goals, self._steps.goals, strict=True)
        results = [(self._node_of(operand), str(var.name), self._graph.nodes[i].type) for (i, var), operand in goals]
        self._drawing.results(results)
        return self._drawing.done()

    def _run(self, step: Run) -> None:
        signature = self._signatures[step.signature]
        result = next((t for t in signature.results if t is not None), None)
        operands, results = step.layouts(self._signatures)
        fmt = results[0] if results else None
        reason = self._facts.reasons.get(step.store, StepReason())
        box = PictureNode(
            kind="op",
            op=self._facts.op_name(step.signature),
            label=self._label(step.store),
            layout=self._names(fmt),
            shape=shape_text(result),
            cost=self._facts.costs.get(step.store, 0.0),
            constants=tuple(map(_constant_bytes, (o for o in step.operands if isinstance(o, ConstantUse)))),
            binding=self._facts.bindings.get(step.store, -1),
            kernel=self._facts.kernels.get(step.store, -1),
            operands=self._names.operands(signature, operands),
            why=reason.why,
            rules=reason.rules,
            ways=reason.ways,
        )
        number = self._drawing.node(box)
        for operand in step.operands:
            if isinstance(operand, int):
                self._drawing.edge(self._made.get(operand), number, self._sizes.get(operand, 0))
        self._define(step.store, number, buffer_bytes(result, fmt))

    def _copy(self, step: Convert) -> None:
        cost = self._facts.costs.get(step.store, 0.0)
        formats = (step.before, step.after)
        box = transform_node(self._names, self._label(step.store), step.type, formats, cost)
        reason = self._facts.reasons.get(step.store, StepReason(box.why))
        box = replace(box, kernel=self._facts.kernels.get(step.store, -1), why=reason.why)
        number = self._drawing.copy(self._made.get(step.source), step.type, *formats, box)
        self._define(step.store, number, buffer_bytes(step.type, step.after))

    def _same(self, store: int, source: Operand) -> None:
        if isinstance(source, int) and source in self._made:
            self._define(store, self._made[source], self._sizes.get(source, 0))

    def _define(self, store: int, number: int, size: int) -> None:
        self._made[store], self._sizes[store] = number, size

    def _node_of(self, operand: Operand) -> int | None:
        return self._made.get(operand) if isinstance(operand, int) else None

    def _label(self, store: int) -> str:
        node = self._facts.owners.get(store, -1)
        return self._graph.nodes[node].label if node >= 0 else ""


def _constant_bytes(use: ConstantUse) -> int:
    return int(use.format.elements() * dtype_bytes(use.constant.dtype))
