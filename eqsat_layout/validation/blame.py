"""Which op is to blame where a plan computes something else than the input.

In: the input module, its planned regions, how inputs are drawn on which they differ. Out: a sentence on the first op,
in the order of the program, whose value differs: both programs are run once more and give all values that both have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.extract.region import Region
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.graph import Graph, Signature
from eqsat_layout.graph.steps import Convert, Run, Steps
from eqsat_layout.maps import Format
from eqsat_layout.notes import last_of
from eqsat_layout.passes.evaluate import evaluate
from eqsat_layout.targets.protocol import Target
from eqsat_layout.validation.exact import exact_results
from eqsat_layout.validation.inputs import Draw, NoInputsError
from eqsat_layout.validation.poison import held_tensors, poisoned
from eqsat_layout.validation.results import difference, machine_for, run_in_machine


@dataclass(frozen=True)
class Blame:
    """Looks for what makes the difference between a module and what its planned ``regions`` make of it."""

    mod: Any
    regions: Sequence[Region]
    signatures: Mapping[str, Signature]
    poison: str | None
    target: Target

    def first_difference(self, function: str, draw: Draw) -> str:
        """The op in words, with how it is run and the rules that led there; empty where no single op can be named.

        A function of which nothing differs by itself may call others, which are run by themselves then. Where the
        search fails, what it failed with.
        """
        others = sorted({region.graph.function for region in self.regions} - {function})
        for name in (function, *others):
            try:
                found = self._of_function(name, draw)
            except Exception as error:  # must not hide the error that is being told, and is told with it
                return f"which op differs first can't be told: {type(error).__name__}: {last_of(error)}"
            if found:
                return found if name == function else f"in {name}, {found}"
        return ""

    def _of_function(self, name: str, draw: Draw) -> str:
        """Regions are put in one after the other: what they share may be wrong where each is right by itself."""
        own = [region for region in self.regions if region.graph.function == name]
        own.sort(key=lambda r: (r.graph.block, r.graph.bindings))
        try:
            inputs = draw.inputs(self.mod[name])
        except NoInputsError:
            return ""
        for number, region in enumerate(own):
            found = self._first_of_region(region, own[:number], inputs)
            if found is not None:
                return _in_words(region, self.signatures, *found)
        return ""

    def _steps(self, region: Region) -> Steps:
        return region.steps if self.poison is None else poisoned(region, self.signatures, self.poison)

    def _first_of_region(
        self, region: Region, before: Sequence[Region], inputs: Sequence[Any]
    ) -> tuple[int, int, str] | None:
        """The node, the store that it is found in, and in what it differs."""
        probes = _probes(region)
        graph, steps = region.graph, self._steps(region)
        found = {node: relax.Var(f"probe{i}", graph.nodes[node].var.ty) for i, (node, *_) in enumerate(probes)}
        extended, goals = list(steps.steps), list(steps.goals)
        fresh = max((s.store for s in steps.steps), default=-1) + 1
        for _, store, ty, fmt in probes:
            if not fmt.is_row_major:
                extended.append(Convert(fresh, store, ty, fmt, ty.row_major))
                store, fresh = fresh, fresh + 1
            goals.append(store)
        origins = {s.store: -1 for s in extended} | dict(steps.origins)
        probed = Graph(graph.function, graph.block, graph.bindings, graph.nodes, list(graph.goals), graph.symbols)
        probed.goals = [*graph.goals, *found.items()]
        planned = [(r.graph, self._steps(r)) for r in before]
        planned.append((probed, Steps(extended, goals, steps.variables, origins)))
        new = emit_module(self.mod, planned, self.signatures, evaluate)
        results, exact = [], []
        for module in (_with_values(self.mod, graph, found), new):
            cut = _cut(module, graph, list(found.values()))
            results.append(run_in_machine(machine_for(self.target.place(cut), self.target), graph.function, inputs))
            exact.append(exact_results(cut, graph.function, inputs))
        for (node, store, *_), expected, got, *both in zip(probes, *results, *exact, strict=True):
            text = difference(expected, got, is_exact=all(both))
            if text:
                return node, store, text
        return None


def _probes(region: Region) -> list[tuple[int, int, Any, Format]]:
    """A store and the format that it holds the value in, for every op's value that the plan has, in program order."""
    nodes, of_node = region.graph.nodes, region.selection.tensors.of_node
    by_tensor: dict[int, tuple[int, Any, Format]] = {}
    tensor_of = {region.selection.tensors.first_node[t]: t for t in of_node}
    for step in region.steps.steps:
        for node, ty, fmt in held_tensors(region, step.store):
            if node >= 0 and ty is not None and fmt is not None and fmt.shape == ty.shape:
                by_tensor.setdefault(tensor_of[node], (step.store, ty, fmt))
    return [
        (i, *by_tensor[of_node[i]])
        for i, node in enumerate(nodes)
        if node.kind in ("op", "get") and node.var is not None and node.type is not None and of_node[i] in by_tensor
    ]


def _with_values(mod: Any, graph: Graph, found: Mapping[int, Any]) -> Any:
    """The input module, values of the region bound to variables that the outside of the block sees."""
    result, function = mod.clone(), mod[graph.function]
    blocks = list(function.body.blocks)
    bindings = list(blocks[graph.block].bindings)
    extra = [relax.VarBinding(var, graph.nodes[node].var) for node, var in found.items()]
    end = graph.bindings[1]
    blocks[graph.block] = relax.DataflowBlock([*bindings[:end], *extra, *bindings[end:]])
    body = relax.SeqExpr(blocks, function.body.body)
    changed = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    result.update_func(result.get_global_var(graph.function), changed)
    return result


def _cut(mod: Any, graph: Graph, values: Sequence[Any]) -> Any:
    """The function up to the region's block; it gives ``values``."""
    result, function = mod.clone(), mod[graph.function]
    builder = relax.BlockBuilder()
    builder.begin_scope(list(function.params))
    blocks = list(function.body.blocks)[: graph.block + 1]
    body = builder.normalize(relax.SeqExpr(blocks, relax.Tuple(list(values))))
    builder.end_scope()
    cut = relax.Function(function.params, body, body.ty, function.is_pure, function.attrs)
    cut = cut.with_attr("global_symbol", graph.function)  # a private one, too
    result.update_func(result.get_global_var(graph.function), cut)
    return tvm.relax.transform.Normalize()(result)


def _in_words(region: Region, signatures: Mapping[str, Signature], node: int, store: int, text: str) -> str:
    own = region.graph.nodes[node]
    name = signatures[own.signature].name if own.signature else "a part of a tuple"
    said = f"the first op that differs is {name} bound to {own.label!r}: its value {text}"
    made = _made_by(region.steps, store)
    choice = next((c for c in region.reasons.choices if c.step.store == made), None)
    if choice is None:
        return said
    step = signatures[choice.step.signature].name
    return f"{said}; it is made by {step} ({choice.origin}; rules: {', '.join(choice.rules)})"


def _made_by(steps: Steps, store: int) -> int:
    """The op at the end of the copies that a store comes through."""
    defined: dict[int, Any] = {s.store: s for s in steps.steps}
    while (
        store in defined
        and not isinstance(defined[store], Run)
        and isinstance(getattr(defined[store], "source", None), int)
    ):
        store = defined[store].source
    return store
