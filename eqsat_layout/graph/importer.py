"""Relax to graphs: every run of understood bindings in a dataflow block becomes a :class:`Graph`.

In: an IRModule. Out: a :class:`Program`. A binding that is not understood is a barrier: it stays where it is, the
region ends before it and a new one begins after it. Nothing is an error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tvm import relax

from eqsat_layout.graph.frozen import DesiredLayouts, FrozenLayouts
from eqsat_layout.graph.graph import Graph, Program
from eqsat_layout.graph.overwriting import functions_that_overwrite
from eqsat_layout.graph.region_reader import Barrier, RegionReader
from eqsat_layout.graph.signatures import SignatureTable
from eqsat_layout.graph.te_kernels import TeKernel
from eqsat_layout.graph.tensor_types import TensorTypes, has_several_devices
from eqsat_layout.maps import Memory
from eqsat_layout.tir.callbacks import FlowCallbacks


def import_module(
    mod: Any,
    desired_layouts: DesiredLayouts | None = None,
    callbacks: FlowCallbacks | None = None,
    memories: Mapping[str, Memory] | None = None,
    kernels: Mapping[str, TeKernel] | None = None,
    *,
    any_numbers: bool = False,
) -> Program:
    """Reads all Relax functions of ``mod``; ``desired_layouts`` freezes ops as the ``frozen`` attribute does.

    PrimFuncs that one of ``callbacks`` speaks for are read as they are, without lifting rewrites out of them.
    ``memories``: those of the target by scope; tensors elsewhere are not understood. ``kernels``: what is called by
    names that no function of ``mod`` has. ``any_numbers`` as for :class:`~eqsat_layout.tir.computation.Computation`.
    """
    types = TensorTypes({} if has_several_devices(mod) else memories)
    table = SignatureTable(mod, callbacks, kernels, any_numbers=any_numbers)
    graphs: list[Graph] = []
    notes: list[str] = []
    overwriting = functions_that_overwrite(mod)
    for global_var, function in sorted(mod.functions_items(), key=lambda item: str(item[0].name_hint)):
        if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
            continue
        if str(global_var.name_hint) in overwriting:
            notes.append(f"{global_var.name_hint}: left as it is, because it overwrites tensors in place")
            continue
        frozen = FrozenLayouts.of_function(str(global_var.name_hint), function, desired_layouts, notes, memories)
        for position, block in enumerate(function.body.blocks):
            if isinstance(block, relax.DataflowBlock):
                name, own = str(global_var.name_hint), types.fresh()
                graphs.extend(_DataflowReader(name, position, list(block.bindings), table, frozen, own).regions())
                notes.extend(f"{name}: ops on {what}" for what in own.refused)
        frozen.check_all_used()
    return Program(graphs, table.finish(), notes)


class _DataflowReader:
    def __init__(
        self,
        function: str,
        position: int,
        bindings: list[Any],
        table: SignatureTable,
        frozen: FrozenLayouts,
        types: TensorTypes,
    ):
        self._function, self._position, self._bindings = function, position, bindings
        self._table, self._frozen = table, frozen
        self._types = types

    def regions(self) -> list[Graph]:
        graphs: list[Graph] = []
        start = 0
        reader = self._new_region(0)
        barriers: list[int] = []
        for i, binding in enumerate(self._bindings):
            try:
                reader.read(binding)
            except Barrier:
                barriers.append(i)
                graphs.append(reader.finish((start, i)))
                start, reader = i + 1, self._new_region(i + 1)
        graphs.append(reader.finish((start, len(self._bindings))))
        graphs = [g for g in graphs if g.bindings[0] < g.bindings[1]]
        self._set_goals(graphs, barriers)
        return [g for g in graphs if g.goals and g.ops]

    def _new_region(self, start: int) -> RegionReader:
        graph = Graph(self._function, self._position, (start, start), symbols=self._types.symbols)
        return RegionReader(graph, self._types, self._table, self._frozen)

    def _set_goals(self, graphs: list[Graph], barriers: list[int]) -> None:
        """A region owes what leaves the block, and what the block's other bindings use."""
        used_elsewhere: dict[int, set[int]] = {}
        if len(graphs) > 1 or barriers:
            for i in range(len(self._bindings)):
                for var in _free_variables(self._bindings[i]):
                    used_elsewhere.setdefault(hash(var), set()).add(i)
        for graph in graphs:
            low, high = graph.bindings
            goals = []
            for var, node in graph.goals:
                users = used_elsewhere.get(hash(var), ())
                if not isinstance(var, relax.DataflowVar) or any(not low <= i < high for i in users):
                    goals.append((node, var))
            graph.goals = goals


def _free_variables(binding: Any) -> Iterable[Any]:
    found = list(relax.analysis.free_vars(binding.value))
    if isinstance(binding, relax.MatchCast):
        found.append(binding.value)
    return found
