"""All implementations that the ops of a program could have: :class:`Offers` for the rules.

In: the signatures of a program, what the target offers, and what the user registers. Out: layouts and
graphs per op, the graphs read by the importer like any program. Frozen ops get none: a frozen op has one candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from eqsat_layout.cost.model import Roofline
from eqsat_layout.errors import CandidateError, did_you_mean
from eqsat_layout.graph.graph import Graph, Program, Signature
from eqsat_layout.graph.op_names import RELAX, relax_ops
from eqsat_layout.implementations.algorithms import Algorithm, algorithms_for, convolution_of
from eqsat_layout.implementations.incoming import Incoming
from eqsat_layout.implementations.layouts import Candidate, is_plain_contraction
from eqsat_layout.implementations.offers import Alternative, Implementer, Offers
from eqsat_layout.implementations.user_candidates import UserCandidates, candidates_of_user
from eqsat_layout.implementations.wanted_graphs import WantedGraph, read_graphs
from eqsat_layout.implementations.worth import Worth, worth_of
from eqsat_layout.tir.computation import Computation

T = TypeVar("T")


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
    wanted: list[WantedGraph] = []
    slower: dict[str, Mapping[str, str]] = {}
    unused = dict.fromkeys(user or ())
    algorithms = _all_of(Algorithm, target.algorithms(), f"{type(target).__name__}.algorithms")
    asked = {key: s for key, s in program.signatures.items() if only is None or key in only}
    flowing = {key: s for key, s in asked.items() if s.flows and key not in silent}
    offered = {key: _layouts_by(target, s) for key, s in flowing.items()}
    analysed = {key: s for key, s in program.signatures.items() if key not in silent}
    incoming = None if prices is None else Incoming(program.graphs, analysed, offered, prices)
    for key, signature in flowing.items():
        own = list(offered[key])
        graphs, worth = _by_algorithms(signature, algorithms, incoming)
        wanted += graphs
        if worth.dropped:
            slower[key] = worth.dropped
        name = next((name for name in (signature.name, signature.rule_name) if user is not None and name in user), None)
        if user is not None and name is not None:
            unused.pop(name, None)
            added, graphs = candidates_of_user(signature, name, user[name])
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
    read, inner = read_graphs(program, wanted)
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
    signature: Signature, algorithms: Sequence[Algorithm], incoming: Incoming | None
) -> tuple[list[WantedGraph], Worth]:
    """The graphs that compute the same as an op, of those algorithms that are worth it."""
    is_known = signature.computation is not None and not signature.symbols and algorithms
    conv = convolution_of(_known(signature.computation)) if is_known else None
    if conv is None:
        return [], Worth((), {})
    worth = Worth(algorithms_for(conv, algorithms), {})
    if incoming is not None and worth.kept:
        worth = worth_of(signature, conv, worth.kept, incoming)
    built = ((algorithm, algorithm.described(conv)) for algorithm in worth.kept)
    key = signature.key
    return [
        WantedGraph(key, a.name, module, a.approx, growth=a.growth) for a, module in built if module is not None
    ], worth


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
