"""Graphs that may replace ops, read by the importer like any program.

In: modules of one function each. Out: alternatives by op, what their ops are added to the program's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax, tirx

from eqsat_layout.errors import CandidateError
from eqsat_layout.graph.graph import Graph, Program, Signature, any_numbers_in
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.graph.renaming import renamed, variable_like
from eqsat_layout.graph.te_kernels import DescribedModule, TeKernel
from eqsat_layout.implementations.offers import Alternative

MAIN = "main"

_GROWTH_OF_USERS = 4.5
"""What the constants of a user's graph may grow by when they are folded: the user knows what it is worth."""


@dataclass(frozen=True)
class WantedGraph:
    """A graph to be read: ``key`` is the op that it may replace, ``whose`` says where it comes from."""

    key: str
    name: str
    module: Any
    approx: bool
    whose: str | None = None
    growth: float = _GROWTH_OF_USERS


def read_graphs(program: Program, wanted: Sequence[WantedGraph]) -> tuple[dict[str, tuple[Alternative, ...]], set[str]]:
    """All graphs, read as one module."""
    if not wanted:
        return {}, set()
    joined, kernels = _joined([w.module for w in wanted])
    read = import_module(joined, kernels=kernels, any_numbers=any_numbers_in(program.signatures))
    renamed = {key: f"{key}~" for key in read.signatures}
    while any(name in program.signatures for name in renamed.values()):
        renamed = {key: f"{name}~" for key, name in renamed.items()}
    by_function: dict[str, list[Graph]] = {}
    for graph in read.graphs:
        by_function.setdefault(graph.function, []).append(graph)
    found: dict[str, tuple[Alternative, ...]] = {}
    for number, own in enumerate(wanted):
        graphs = by_function.get(f"f{number}", [])
        variables = list(joined[f"f{number}"].params)
        alternative = _alternative(own, graphs, variables, program.signatures[own.key], renamed)
        if alternative is not None:
            found[own.key] = (*found.get(own.key, ()), alternative)
        elif own.whose is not None:
            raise CandidateError(f"{own.whose}: {own.name} is no function of the op's operands that gives its result")
    inner = {node.signature for graphs in found.values() for g in graphs for node in g.graph.nodes if node.signature}
    for key, name in renamed.items():
        program.signatures[name] = replace(read.signatures[key], key=name)
    return found, inner


def _joined(modules: Sequence[Any]) -> tuple[Any, dict[str, TeKernel]]:
    """One module: ``main`` of module i is called ``f<i>``, its PrimFuncs get names that are free. Those that are only
    described are beside it, by their names."""
    builder = relax.BlockBuilder()
    functions: dict[str, Any] = {}
    described: dict[str, TeKernel] = {}
    for i, module in enumerate(modules):
        if isinstance(module, DescribedModule):
            own = {var: variable_like(var, f"f{i}_{var.name_hint}") for var in module.kernels}
            described |= {str(own[var].name_hint): kernel for var, kernel in module.kernels.items()}
            functions[f"f{i}"] = renamed(module.main, own)
            continue
        names = {
            var: builder.add_func(without_public_name(func), f"f{i}_{var.name_hint}")
            for var, func in sorted(module.functions_items(), key=lambda item: str(item[0].name_hint))
            if isinstance(func, tirx.PrimFunc)
        }
        functions[f"f{i}"] = renamed(module[MAIN], names)
    joined: Any = builder.get()
    for name, function in functions.items():
        joined[name] = function.with_attr("global_symbol", name)
    return joined, described


def _alternative(
    own: WantedGraph,
    graphs: Sequence[Graph],
    variables: Sequence[Any],
    signature: Signature,
    renamed: Mapping[str, str],
) -> Alternative | None:
    """The graph; ``None`` where something in it is not understood or it is of another type than the op."""
    if len(graphs) != 1 or len(graphs[0].goals) != 1:
        return None
    graph = graphs[0]
    result = graph.goals[0][0]
    params: list[int | None] = []
    types: list[Any] = []
    for node in graph.nodes:
        is_param = node.kind == "param"
        number = next((i for i, var in enumerate(variables) if is_param and var.same_as(node.var)), None)
        params.append(number)
        types += [(number, node.type)] if is_param else []
    if len(variables) != len(signature.operands) or any(i is None or signature.operands[i] != ty for i, ty in types):
        return None
    if graph.nodes[result].type != signature.results[0] or graph.nodes[result].kind == "param":
        return None
    nodes = [replace(node, signature=renamed.get(node.signature, "")) for node in graph.nodes]
    copy = Graph(graph.function, graph.block, graph.bindings, nodes, graph.goals, graph.symbols)
    return Alternative(f"{own.name}@{own.key}", copy, tuple(params), result, own.approx, own.growth)
