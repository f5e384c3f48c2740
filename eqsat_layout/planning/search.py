"""The plan of every region of a module: import, saturate, extract.

In: a module, a checked target and options. Out: a :class:`Search`, what every region is planned with, and the
:class:`~eqsat_layout.extract.region.Region` that it finds for each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from eqsat_layout.cost.assumed import AssumedSizes
from eqsat_layout.cost.checked import checked_cost_model
from eqsat_layout.cost.copies import COPY, FewestCopies
from eqsat_layout.cost.database import Snapshot
from eqsat_layout.cost.fusion import Fusion
from eqsat_layout.cost.model import CostModel, Roofline
from eqsat_layout.egraph.flows import Spokesman, flow_callbacks, user_flows
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.egraph.making import Builder
from eqsat_layout.egraph.python_rules import PythonRule
from eqsat_layout.egraph.rule_lint import lint_notes
from eqsat_layout.egraph.rule_notes import rule_notes
from eqsat_layout.egraph.rules import Command, is_own, read_all, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.egraph.saturated import Saturated
from eqsat_layout.errors import CostError, EqsatError, RuleError, TargetError
from eqsat_layout.extract.baseline import baseline
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.region import Region
from eqsat_layout.extract.selection import Selection
from eqsat_layout.extract.solved import solved
from eqsat_layout.extract.solver.problem import ExtractionError
from eqsat_layout.extract.tensors import Tensors
from eqsat_layout.graph.graph import Graph, Program
from eqsat_layout.graph.importer import import_module
from eqsat_layout.implementations.collect import make_offers
from eqsat_layout.implementations.offers import Offers
from eqsat_layout.implementations.user_candidates import check_user_candidates
from eqsat_layout.notes import Notes
from eqsat_layout.planning.checked_options import (
    COPIES,
    TRAFFIC,
    check_assumed,
    check_limits,
    check_objective,
    check_rules,
    check_time_limit,
    unmet_desires,
)
from eqsat_layout.planning.clock import Clock
from eqsat_layout.planning.options import Options, check_options
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.system.second_thread import second_thread
from eqsat_layout.targets.protocol import Target

_SAID: Final = {
    TRAFFIC: "costs are the seconds that moving bytes takes, and nothing else: plans are compared by traffic",
    COPIES: f"kernels that only copy cost {format_seconds(COPY)} more: plans are compared by copies, then by time",
}
"""Of objectives what their costs mean."""


@dataclass(frozen=True)
class Search:
    """What the planning of every region is given. Notes go to those of ``program``, seconds to ``clock``."""

    target: Target
    program: Program
    commands: list[Command]
    costs: CostModel
    time_limit: float | None
    limits: Limits
    clock: Clock
    spokesmen: Mapping[str, Spokesman]
    offers: Offers
    builders: Mapping[str, Builder] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)


@second_thread()
def search_of(
    mod: Any,
    target: Target,
    options: Options,
    known: Snapshot,
    left_out: frozenset[Command] = frozenset(),
    *,
    all_algorithms: bool = False,
) -> Search:
    """What ``options`` ask for, ``mod`` imported, without the rules ``left_out``.

    ``mod`` is a checked module; ``known``: what was measured on the machine. ``all_algorithms``: those too
    that can't pay by these costs, where nothing is measured yet.
    Raises :class:`~eqsat_layout.errors.EqsatError` for a malformed module, rule file, layout, flow or candidate,
    ``TypeError`` for an option that is none.
    """
    check_options(options)
    rules, limits = check_rules(options.get("rules")), check_limits(options.get("limits"))
    time_limit, own_model = check_time_limit(options.get("time_limit")), options.get("cost_model")
    objective = check_objective(options.get("objective"), own_model)
    desired = options.get("desired_layouts")
    clock = Clock()
    with clock.stage("rules"):
        commands = [command for command in read_all([*rule_files(), *rules]) if command not in left_out]
        builders = {rule.asked_for: rule.build for rule in rules if isinstance(rule, PythonRule)}
    with clock.stage("import"):
        callbacks = flow_callbacks(options.get("flows"))
        program = import_module(mod, desired, callbacks, target.memories, any_numbers=not target.approx)
        _check_memories(program, target)
        spoken = user_flows(callbacks, program.signatures)
    files = {command.file for command in commands}
    empty = [path for path in rules if isinstance(path, Path) and str(path) not in files]
    program.notes += [f"{path}: there is no rule in it" for path in empty if not left_out]
    program.notes += [*lint_notes(commands), *spoken.notes, *unmet_desires(desired, program)]
    with clock.stage("candidates"):
        modelled = target.modelled(known)
        offers_all = all_algorithms or known.has_kernels or own_model is not None or objective in _SAID
        prices = modelled if isinstance(modelled, Roofline) and not offers_all else None
        offers = _offers(program, target, options, spoken.by_key, prices)
        if own_model is None:
            program.notes += known.notes
            costs = target.costs(known, program.signatures.values())
            costs = checked_cost_model(costs, f"costs of target {target.kind!r}") if target.is_foreign else costs
        else:
            costs = checked_cost_model(own_model)
        if objective in _SAID:
            costs = target.traffic(costs) if objective == TRAFFIC else FewestCopies(costs)
            program.notes.append(_SAID[objective])
        assumed = check_assumed(options.get("assume"), program)
        costs = AssumedSizes(costs, assumed) if assumed else costs
    return Search(target, program, commands, costs, time_limit, limits, clock, spoken.by_key, offers, builders, assumed)


def plan_regions(search: Search) -> list[Region]:
    """The best plan of every region that has one."""
    regions = [region for graph in search.program.graphs if (region := _planned(graph, search)) is not None]
    search.program.notes += rule_notes(search.commands, [region.saturated.experience for region in regions])
    return regions


def extract(saturated: Saturated, search: Search) -> Region:
    """The best plan of a region that is saturated, under the costs of ``search``."""
    graph, signatures, clock = saturated.graph, search.program.signatures, search.clock
    with clock.stage("read"):
        tensors = Tensors(saturated, signatures)
        fusion = _fusion(search, graph, tensors.of_node)
        selection = Selection(tensors, signatures, search.costs, fusion)
    with clock.stage("extract"):
        solution = solved(selection, selection.problem, search.time_limit)
    with clock.stage("decode"):
        decoder = Decoder(selection, solution)
        steps = decoder.run()
        written = _fusion(search, graph, range(len(graph.nodes)))
        input_cost, rewrites = baseline(graph, signatures, search.costs, written)
        input_cost += selection.input_constant_cost
        own = [signatures[n.signature] for n in graph.nodes if n.kind == "op"]
        annotated = any(one.is_moved or one.is_placing for one in own)
    return Region(graph, saturated, selection, solution, decoder, steps, input_cost, rewrites, written, annotated)


def _fusion(search: Search, graph: Graph, tensors: Sequence[Hashable]) -> Fusion:
    found: Any = search.target.fusion(graph, search.program.signatures, tensors)
    if not isinstance(found, Fusion):
        raise TargetError(f"target {search.target.kind!r}: fusion must give a Fusion, got {found!r}")
    return found


def _planned(graph: Graph, search: Search) -> Region | None:
    """The region; without the user's rules where no whole program can be had with them; None where not even without."""
    notes = search.program.notes
    saturated = _saturated(graph, search)
    try:
        return extract(saturated, search)
    except CostError:
        raise
    except (ExtractionError, LookupError, AssertionError, ValueError) as error:
        own = [command for command in search.commands if is_own(command)]
        if not saturated.stops and len(own) == len(search.commands):
            if isinstance(error, ExtractionError):
                raise EqsatError(f"{graph.function}: no program has a finite cost: {error}") from error
            raise
        if not isinstance(error, EqsatError):  # rules have led where those of the package never do, or it is a fault
            faults = Notes()
            faults.fault(f"{graph.function}: no plan with all that the rules say", error)
            notes += faults
        notes += saturated.notes
        reason = "were stopped before they had a program" if saturated.stops else f"leave no program: {error}"
    if len(own) < len(search.commands):
        notes.append(f"{graph.function}: planned without further rules, because they {reason}")
        return _planned(graph, replace(search, commands=own))
    notes.append(f"{graph.function}: stays as it is, because the rules {reason}")
    return None


def _saturated(graph: Graph, search: Search) -> Saturated:
    with search.clock.stage("saturate"):
        try:
            return saturate(
                graph,
                search.program.signatures,
                search.commands,
                search.spokesmen,
                search.offers,
                search.limits,
                search.builders,
            )
        except RuleError as error:  # a slip may be why: there is no plan whose notes would say it
            slips = lint_notes(search.commands)
            raise RuleError("; ".join([*slips, str(error)])) if slips else error from error.__cause__


def _offers(
    program: Program, target: Target, options: Options, spoken_for: Iterable[str], prices: Roofline | None
) -> Offers:
    candidates = options.get("candidates", True)
    if candidates is False:
        return Offers(placement=target)
    own = None if candidates is True else check_user_candidates(candidates)
    return make_offers(program, target, own, spoken_for=spoken_for, prices=prices)


def _check_memories(program: Program, target: Target) -> None:
    """The target's memories hold the layouts that annotations ask for; else :class:`TargetError`."""
    for graph in program.graphs:
        for node in graph.nodes:
            signature = program.signatures.get(node.signature)
            frozen = None if signature is None else signature.frozen
            if signature is None or frozen is None:
                continue
            operands = zip(signature.operands, frozen.operands, strict=True)
            results = zip(signature.results, frozen.results, strict=True)
            sides = [(f"operand {i}", *own) for i, own in enumerate(operands)]
            sides += [(f"result {i}", *own) for i, own in enumerate(results)]
            for side, ty, fmt in sides:
                reason = None if ty is None else target.holds(ty, fmt)
                if reason is not None:
                    where = f"{graph.function}: {signature.name} bound to {node.label!r}: {side}"
                    raise TargetError(f"{where}: {reason}")
