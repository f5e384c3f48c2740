"""All implementations that the ops of a program could have: :class:`Offers` for the rules.

In: the signatures of a program, what the target offers, and what the user registers. Out: layouts and
graphs per op, the graphs read by the importer like any program. Frozen ops get none: a frozen op has one candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import tvm
from tvm import relax, tirx

from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import CandidateError, EqsatError, LayoutError, did_you_mean
from eqsat_layout.graph.frozen import formats_of_layouts
from eqsat_layout.graph.graph import Graph, Program, Signature
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.op_names import RELAX, relax_ops
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.graph.relax_form import relax_type
from eqsat_layout.graph.renaming import renamed
from eqsat_layout.implementations.algorithms import Algorithm, algorithms_for, convolution_of
from eqsat_layout.implementations.layouts import Candidate, is_plain_contraction
from eqsat_layout.implementations.offers import Alternative, Implementer, Offers
from eqsat_layout.implementations.worth import Worth, worth_of
from eqsat_layout.maps import Format
from eqsat_layout.tir.computation import Computation
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.flow import complete

Replacement = Any
"""What an op may be replaced by: layout names, operands first, for the same op in these layouts; a ``tirx.PrimFunc`` or
``relax.Function`` of the same operands and result; or an ``IRModule`` whose ``main`` is one."""

CandidateCallback = Callable[[Any], Iterable[Replacement] | None]
"""From the ``relax.Call`` to be replaced, over stand-ins of its operands, to its replacements."""

T = TypeVar("T")

UserCandidates = Mapping[str, Iterable[Replacement] | CandidateCallback]
"""By the name of a Relax op or PrimFunc."""

_MAIN = "main"

_GROWTH_OF_USERS = 4.5
"""What the constants of a user's graph may grow by when they are folded: the user knows what it is worth."""

_MOST = 256
"""A callback that gives more candidates is taken to give them without end."""


@dataclass(frozen=True)
class _Wanted:
    """A graph to be read: ``key`` is the op that it may replace, ``whose`` says where it comes from."""

    key: str
    name: str
    module: Any
    approx: bool
    whose: str | None = None
    growth: float = _GROWTH_OF_USERS


def make_offers(
    program: Program,
    target: Implementer,
    user: UserCandidates | None,
    *,
    spoken_for: Iterable[str],
    only: Collection[str] | None = None,
    prices: Roofline | None = None,
) -> Offers:
    """The offers for a program; the signatures that only graphs have are added to ``program.signatures``.

    ``spoken_for``: ops that the user's flow callbacks speak for; they keep to what these say. ``only``: the keys of the
    ops to make offers for, by default all. ``prices``: algorithms that take longer by these are left out.
    Raises :class:`CandidateError` for a replacement of the user's that is none.
    """
    silent = set(spoken_for)
    layouts: dict[str, tuple[Candidate, ...]] = {}
    wanted: list[_Wanted] = []
    slower: dict[str, Mapping[str, str]] = {}
    unused = dict.fromkeys(user or ())
    algorithms = _all_of(Algorithm, target.algorithms(), f"{type(target).__name__}.algorithms")
    asked = {key: s for key, s in program.signatures.items() if only is None or key in only}
    for key, signature in asked.items():
        if not signature.flows or key in silent:
            continue
        own = _layouts_by(target, signature)
        graphs, worth = _by_algorithms(signature, own, algorithms, prices)
        wanted += graphs
        if worth.dropped:
            slower[key] = worth.dropped
        name = next((name for name in (signature.name, signature.rule_name) if user is not None and name in user), None)
        if user is not None and name is not None:
            unused.pop(name, None)
            added, graphs = _of_user(signature, name, user[name])
            own += added
            if graphs and signature.symbols:
                program.notes.append(
                    f"{signature.name}: has symbolic sizes, so candidates that are graphs are left out"
                )
            else:
                wanted += graphs
        if own:
            layouts[key] = tuple(own)
    _check_unused(unused, {name for s in program.signatures.values() for name in (s.name, s.rule_name)})
    program.notes += [f"the candidates for {name!r} have nothing to replace" for name in unused]
    free = {
        key
        for key, signature in asked.items()
        if signature.flows and key not in silent and is_plain_contraction(_known(signature.computation))
    }
    read, inner = _read_graphs(program, wanted)
    dominant = _dominant_ops(read, program.signatures)
    layouts |= _layouts_of(dominant, program, target)
    return Offers(
        layouts,
        read,
        frozenset(inner),
        _one_way(read, layouts),
        frozenset(free | dominant),
        _growth(read),
        target,
        target,
        prices,
        slower,
    )


def _by_algorithms(
    signature: Signature, candidates: Sequence[Candidate], algorithms: Sequence[Algorithm], prices: Roofline | None
) -> tuple[list[_Wanted], Worth]:
    """The graphs that compute the same as an op, of those algorithms that are worth it."""
    is_known = signature.computation is not None and not signature.symbols and algorithms
    conv = convolution_of(_known(signature.computation)) if is_known else None
    if conv is None:
        return [], Worth((), {})
    worth = Worth(algorithms_for(conv, algorithms), {})
    if prices is not None and worth.kept:
        worth = worth_of(signature, conv, candidates, worth.kept, prices)
    built = ((algorithm, algorithm.of(conv)) for algorithm in worth.kept)
    key = signature.key
    return [_Wanted(key, a.name, module, a.approx, growth=a.growth) for a, module in built if module is not None], worth


def _layouts_of(keys: Iterable[str], program: Program, target: Implementer) -> dict[str, tuple[Candidate, ...]]:
    """What the target offers for the ops of these keys, where it offers anything."""
    signatures = {key: program.signatures[key] for key in sorted(keys)}
    found = {key: tuple(_layouts_by(target, s)) for key, s in signatures.items() if s.computation is not None}
    return {key: candidates for key, candidates in found.items() if candidates}


def _layouts_by(target: Implementer, signature: Signature) -> list[Candidate]:
    """What the target offers for one op."""
    given = target.candidates(_known(signature.computation))
    return _all_of(Candidate, given, f"{type(target).__name__}.candidates for {signature.name}")


def _all_of(kind: type[T], given: Iterable[Any], who: str) -> list[T]:
    """What is ``given``, in a list; :class:`CandidateError` unless all are of that kind: it may be code of others."""
    found = list(given) if isinstance(given, Iterable) else [given]
    if wrong := [one for one in found if not isinstance(one, kind)]:
        raise CandidateError(f"{who} must be of type {kind.__name__}, got {wrong[0]!r}")
    return found


def _check_unused(names: Iterable[str], known: set[str]) -> None:
    """A name that is none is an error; an op that this program does not have is not."""
    for name in names:
        near = did_you_mean(name, known) or did_you_mean(name, relax_ops())
        if name not in relax_ops() and (near or name.startswith(RELAX)):
            raise CandidateError(f"candidates for {name!r}: no op and no PrimFunc is called so; {near}".rstrip("; "))


def _growth(graphs: Mapping[str, tuple[Alternative, ...]]) -> dict[str, float]:
    """By op of a graph what folding it may make of its constants; the most of all graphs that have it."""
    found: dict[str, float] = {}
    for alternative in (a for own in graphs.values() for a in own):
        for key in (node.signature for node in alternative.graph.nodes if node.signature):
            found[key] = max(found.get(key, 0.0), alternative.growth)
    return found


def _known(computation: Computation | None) -> Computation:
    assert computation is not None, "layouts flow only through what is understood"
    return computation


def check_user_candidates(given: Any) -> UserCandidates:
    """``given`` as it is, if it is a dictionary by names; :class:`CandidateError` else."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise CandidateError(f"candidates must be True, False or a dictionary by names of ops, got {given!r}")
    return given


def _of_user(
    signature: Signature, name: str, given: Iterable[Replacement] | CandidateCallback
) -> tuple[list[Candidate], list[_Wanted]]:
    where = f"candidates for {name!r}, asked for {signature.name}"
    try:
        found = list(islice((given(signature.template) if callable(given) else given) or (), _MOST + 1))
    except EqsatError:
        raise
    except Exception as error:  # code of the user's
        raise CandidateError(f"{where}: the callback failed: {type(error).__name__}: {error}") from error
    if len(found) > _MOST:
        raise CandidateError(f"{where}: there are more than {_MOST}; do they ever end?")
    layouts: list[Candidate] = []
    graphs: list[_Wanted] = []
    for number, replacement in enumerate(found):
        label = f"{name}[{number}]"
        if isinstance(replacement, tirx.PrimFunc | relax.Function | tvm.IRModule):
            graphs.append(_Wanted(signature.key, label, _module_of(replacement, signature, where), True, where))
        elif isinstance(replacement, list | tuple) and all(isinstance(text, str) for text in replacement):
            layouts += _layouts_of_user(signature, replacement, where)
        else:
            raise CandidateError(f"{where}: {replacement!r} is no list of layout names, PrimFunc, function or module")
    return layouts, graphs


def _layouts_of_user(signature: Signature, names: Sequence[str], where: str) -> list[Candidate]:
    try:
        frozen = formats_of_layouts(signature.template, tuple(names), signature.operands, signature.results, where)
    except LayoutError as error:
        raise CandidateError(f"{where}: {error}") from error
    assert signature.computation is not None
    return [Candidate(" ".join(names), complete(signature.computation, frozen.operands, frozen.results))]


def _dominant_ops(graphs: Mapping[str, tuple[Alternative, ...]], signatures: Mapping[str, Signature]) -> set[str]:
    """The ops that do most of the work of a graph; the others take the layouts that these have.

    That is one op, or else all that multiply what comes from the operands: transforms have constant matrices.
    """
    found: set[str] = set()
    for alternative in (a for own in graphs.values() for a in own):
        work = {
            node.signature: computation.flops
            for node in alternative.graph.nodes
            if node.signature and (computation := signatures[node.signature].computation) is not None
        }
        most = {key for key, flops in work.items() if 2 * flops > sum(work.values())}
        found |= most or {key for key in work if _multiplies(alternative.graph, key, signatures)}
    return found


def _multiplies(graph: Graph, key: str, signatures: Mapping[str, Signature]) -> bool:
    """The op is a contraction, and none of its operands is a constant of the graph."""
    computation = signatures[key].computation
    operands = [graph.nodes[i].kind for node in graph.nodes if node.signature == key for i in node.inputs]
    return computation is not None and any(b.is_contraction for b in computation.blocks) and "const" not in operands


def _one_way(graphs: Mapping[str, tuple[Alternative, ...]], layouts: Mapping[str, object]) -> dict[str, str]:
    """Which way layouts flow through the ops of graphs: away from those that have layouts of their own."""
    ways: dict[str, set[str]] = {}
    for alternative in (a for own in graphs.values() for a in own):
        nodes = alternative.graph.nodes
        dominant = {i for i, node in enumerate(nodes) if node.signature in layouts}
        after, before = set(dominant), set(dominant)
        for i, node in enumerate(nodes):
            after |= {i} if after.intersection(node.inputs) else set()
        for i in reversed(range(len(nodes))):
            before |= set(nodes[i].inputs) if i in before else set()
        for i, node in enumerate(nodes):
            if node.signature and i not in dominant and i != alternative.result:
                way = "forward" if i in after and i not in before else "backward" if i in before else ""
                ways.setdefault(node.signature, set()).add(way)
    return {key: way for key, (way, *others) in ((k, sorted(w)) for k, w in ways.items()) if way and not others}


def _module_of(replacement: Any, signature: Signature, where: str) -> tvm.IRModule:
    if isinstance(replacement, relax.Function):
        return tvm.IRModule({_MAIN: replacement})
    if isinstance(replacement, tvm.IRModule):
        if _MAIN not in [str(v.name_hint) for v in replacement.get_global_vars()]:
            raise CandidateError(f"{where}: the module has no function {_MAIN!r}")
        return replacement
    types = [t for t in (*signature.operands, *signature.results) if t is not None]
    given = [getattr(param, "ty", None) for param in replacement.params]
    own = [(tuple(map(extent_of, ty.shape)), str(ty.dtype)) for ty in given if isinstance(ty, tirx.BufferType)]
    if own != [(t.shape, t.dtype) for t in types]:
        raise CandidateError(f"{where}: the PrimFunc is no function of the op's operands that gives its result")
    builder = relax.BlockBuilder()
    symbols = dict(signature.symbols)
    params = [relax.Var(f"p{i}", _type(t, symbols)) for i, t in enumerate(signature.operands) if t is not None]
    result = _type(signature.results[0], symbols)
    with builder.function(_MAIN, params):
        with builder.dataflow():
            func = builder.add_func(replacement, "replacement")
            out = builder.emit_output(relax.call_tir(func, relax.Tuple(params), result))
        builder.emit_func_output(out)
    return builder.get()


def _type(ty: Any, symbols: dict[str, Any]) -> Any:
    return relax_type(ty, Format.row_major(ty.shape), symbols)


def _read_graphs(program: Program, wanted: Sequence[_Wanted]) -> tuple[dict[str, tuple[Alternative, ...]], set[str]]:
    """All graphs, read as one module."""
    if not wanted:
        return {}, set()
    joined = _joined([w.module for w in wanted])
    read = import_module(joined)
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


def _joined(modules: Sequence[Any]) -> Any:
    """One module: ``main`` of module i is called ``f<i>``, its PrimFuncs get names that are free."""
    builder = relax.BlockBuilder()
    functions: dict[str, Any] = {}
    for i, module in enumerate(modules):
        names = {
            var: builder.add_func(without_public_name(func), f"f{i}_{var.name_hint}")
            for var, func in sorted(module.functions_items(), key=lambda item: str(item[0].name_hint))
            if isinstance(func, tirx.PrimFunc)
        }
        functions[f"f{i}"] = renamed(module[_MAIN], names)
    joined: Any = builder.get()
    for name, function in functions.items():
        joined[name] = function.with_attr("global_symbol", name)
    return joined


def _alternative(
    own: _Wanted, graphs: Sequence[Graph], variables: Sequence[Any], signature: Signature, renamed: Mapping[str, str]
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
