"""The whole way: import, saturate, extract, emit, compile.

In: a Relax IRModule. Out: an equivalent one that costs no more, or what it was where nothing is gained.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import tvm
from tvm import relax

from eqsat_layout.checks import check_limits, check_rules, check_time_limit, unmet_desires
from eqsat_layout.clock import Clock
from eqsat_layout.egraph.implementations import UserCandidates, check_user_candidates, make_offers
from eqsat_layout.egraph.limits import Limits
from eqsat_layout.egraph.offers import Offers
from eqsat_layout.egraph.rules import Command, read_commands, rule_files
from eqsat_layout.egraph.saturate import Saturated, is_own, saturate
from eqsat_layout.egraph.user_flows import Spokesman, flow_callbacks, user_flows
from eqsat_layout.errors import CostError, EqsatError, MalformedModuleError, TargetError, ValidationError
from eqsat_layout.extract.baseline import baseline
from eqsat_layout.extract.checked_cost import checked_cost_model
from eqsat_layout.extract.cost import CostModel
from eqsat_layout.extract.database import Database
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.frontier import solve
from eqsat_layout.extract.problem import ExtractionError
from eqsat_layout.extract.selection import Selection
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.frozen import DesiredLayouts
from eqsat_layout.graph.graph import Graph, Program
from eqsat_layout.graph.importer import import_module
from eqsat_layout.maps import Format
from eqsat_layout.report import Plan
from eqsat_layout.summary import Region, summarise
from eqsat_layout.targets import axis_groups, channel_blocks, lower, normalize_target, prepare
from eqsat_layout.targets.calibrate import known_costs
from eqsat_layout.tir.callbacks import FlowCallback

_REWRITES = re.compile(r"\(\s*(rule|rewrite|birewrite|union)\b")


class Options(TypedDict, total=False):
    """What :func:`optimize`, :func:`plan`, :func:`compile` and :func:`OptimizeLayout` take besides module and target.

    ``rules``: further ``.egg`` files. ``desired_layouts``: layouts by op, as TVM's ``ConvertLayout`` takes them, or
    callbacks; best effort, notes say where they can't be had or cost more. ``candidates``: False offers no other
    implementations of convolutions and matrix products than the written ones; a dictionary adds the user's own
    (:data:`~eqsat_layout.egraph.implementations.UserCandidates`). ``approx``: also those that round differently, such
    as Winograd. ``flows``: how layouts go through ops, in place of what their TIR says
    (:class:`~eqsat_layout.tir.callbacks.FlowCallback`). ``cost_model``: in place of the target's roofline.
    ``time_limit``: of the extraction, in seconds. ``limits``: of the rules, so that rules that never come to an end are
    stopped. ``validate``: run both modules on random inputs, with poison in all padding that nothing may rely on, and
    raise :class:`~eqsat_layout.errors.ValidationError` where they differ. ``fallback``: where they differ, give the
    input back, with a note that says where, instead of raising; implies ``validate``.
    """

    rules: Iterable[str | Path] | None
    desired_layouts: DesiredLayouts | None
    cost_model: CostModel | None
    time_limit: float | None
    limits: Limits | None
    validate: bool
    fallback: bool
    flows: Mapping[str, FlowCallback] | None
    candidates: UserCandidates | bool
    approx: bool


def optimize(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """An IRModule equivalent to ``mod`` whose layouts are chosen globally; ``mod`` itself where nothing is gained.

    ``target`` is what TVM takes, default this machine; :class:`Options` says what else can be given. ``mod`` is never
    changed. Raises :class:`~eqsat_layout.errors.EqsatError` for a malformed module, rule file, layout, flow, candidate
    or target.
    """
    return plan(mod, target, **options).module


def plan(mod: Any, target: Any = None, **options: Unpack[Options]) -> Plan:
    """As :func:`optimize`, with everything known about the choice: costs, bound, what stays and what it took."""
    unknown = sorted(set(options) - Options.__annotations__.keys())
    if unknown:
        raise TypeError(
            f"plan() got an unexpected option {unknown[0]!r}; there are {', '.join(Options.__annotations__)}"
        )
    with collector_paused():
        return _plan(mod, target, options)


def _plan(mod: Any, target: Any, options: Options, left_out: frozenset[Command] = frozenset()) -> Plan:
    """The plan that the rules without those ``left_out`` give."""
    check_module(mod)
    checked = normalize_target(target)
    rules, limits = check_rules(options.get("rules")), check_limits(options.get("limits"))
    time_limit, own_model = check_time_limit(options.get("time_limit")), options.get("cost_model")
    clock = Clock()
    with clock.stage("rules"):
        commands = [command for path in rule_files(rules) for command in read_commands(path)]
        commands = [command for command in commands if command not in left_out]
    with clock.stage("import"):
        callbacks = flow_callbacks(options.get("flows"))
        program = import_module(mod, options.get("desired_layouts"), callbacks)
        _check_axis_groups(program, checked)
        spoken = user_flows(callbacks, program.signatures)
    program.notes += [*spoken.notes, *unmet_desires(options.get("desired_layouts"), program)]
    with clock.stage("candidates"):
        offers = offers_for(program, checked, options, spoken.by_key)
        costs = _own_costs(program, checked) if own_model is None else checked_cost_model(own_model)
    search = _Search(program, commands, costs, time_limit, limits, clock, spoken.by_key, offers)
    regions = [region for graph in program.graphs if (region := _planned(graph, search)) is not None]
    better = [r for r in regions if r.is_taken]
    with clock.stage("emit"):
        module = emit_module(mod, [(r.graph, r.steps) for r in better], program.signatures) if better else mod
    if better and (options.get("validate") or options.get("fallback")):
        with clock.stage("validate"):
            try:
                _validate(mod, module, better, search, partial(_plan, mod, target, options), left_out)
            except ValidationError as error:
                if left_out or not options.get("fallback"):
                    raise
                program.notes.append(f"the module is unchanged, because validation failed: {error}")
                module, regions = mod, list(map(_kept, regions))
    return summarise(module, regions, program, costs, clock.seconds)


def _validate(
    mod: Any,
    module: Any,
    regions: Sequence[Region],
    search: _Search,
    plan_without: Callable[[frozenset[Command]], Any],
    left_out: frozenset[Command],
) -> None:
    """:class:`ValidationError` if ``module`` is wrong, with the rule of the user's that makes it so."""
    from eqsat_layout.soundness.validate import validate

    try:
        search.program.notes += validate(mod, module, regions, search.program)
    except ValidationError as error:
        rules = [c for c in search.commands if not is_own(c) and _REWRITES.match(c.text)]
        rule = None if left_out else _guilty(rules, plan_without)
        if rule is None:
            raise
        raise ValidationError(f"{error}; it is right without the rule of {rule.file}:{rule.line}") from error


def _guilty(rules: Sequence[Command], plan_without: Callable[[frozenset[Command]], Any]) -> Command | None:
    """The last of the fewest rules, in their order, that make a plan wrong; None if it is wrong without any."""

    def is_wrong(count: int) -> bool:
        try:
            plan_without(frozenset(rules[count:]))
        except ValidationError:
            return True
        except EqsatError:
            return False
        return False

    low, high = -1, len(rules)  # with `low` rules it is right, with `high` it is wrong
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_wrong(middle) else (middle, high)
    return rules[high - 1] if high else None


def _kept(region: Region) -> Region:
    """The region as it was, whatever was planned for it."""
    return replace(region, annotated=False, solution=replace(region.solution, cost=math.inf))


def _own_costs(program: Program, target: Any) -> CostModel:
    """The target's roofline, refined by what was measured on this machine if anything was."""
    known = Database().read()
    program.notes += known.notes
    return known_costs(target, program.signatures.values(), known)


def offers_for(program: Program, target: Any, options: Options, spoken_for: Iterable[str]) -> Offers:
    candidates = options.get("candidates", True)
    if candidates is False:
        return Offers()
    own = None if candidates is True else check_user_candidates(candidates)
    blocks = channel_blocks(target)
    return make_offers(program, blocks, own, approx=options.get("approx", True), spoken_for=spoken_for)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Planning makes millions of small objects that all stay alive; looking for cycles among them doubles its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compile(mod: Any, target: Any = None, **options: Unpack[Options]) -> Any:
    """Prepares ``mod`` for inference, optimises its layouts, schedules and builds it for ``target``.

    Gives TVM's own executable, for ``relax.VirtualMachine``. Takes the same :class:`Options`.
    """
    return lower(plan(prepare(mod), target, **options).module, target)


def OptimizeLayout(target: Any = None, **options: Unpack[Options]) -> Any:
    """:func:`optimize` as a ``tvm.ir.transform.Pass``, to put into a ``Sequential``; takes the same options."""

    @tvm.transform.module_pass(opt_level=0, name="OptimizeLayout")  # type: ignore[untyped-decorator]
    def transform(mod: Any, _context: Any) -> Any:
        return optimize(mod, target, **options)

    return transform


@dataclass(frozen=True)
class _Search:
    """What the planning of every region is given."""

    program: Program
    commands: list[Command]
    costs: CostModel
    time_limit: float | None
    limits: Limits
    clock: Clock
    spokesmen: Mapping[str, Spokesman]
    offers: Offers


def _planned(graph: Graph, search: _Search) -> Region | None:
    """The region; without the user's rules where no whole program can be had with them; None where not even without."""
    notes = search.program.notes
    saturated = _saturated(graph, search)
    try:
        return _extracted(graph, saturated, search)
    except CostError:
        raise
    except (ExtractionError, LookupError, AssertionError, ValueError) as error:
        own = [command for command in search.commands if is_own(command)]
        if not saturated.stops and len(own) == len(search.commands):
            if isinstance(error, ExtractionError):
                raise EqsatError(f"{graph.function}: no program has a finite cost: {error}") from error
            raise
        notes += saturated.notes
        reason = "were stopped before they had a program" if saturated.stops else f"leave no program: {error}"
    if len(own) < len(search.commands):
        notes.append(f"{graph.function}: planned without further rules, because they {reason}")
        return _planned(graph, replace(search, commands=own))
    notes.append(f"{graph.function}: stays as it is, because the rules {reason}")
    return None


def _saturated(graph: Graph, search: _Search) -> Saturated:
    with search.clock.stage("saturate"):
        return saturate(
            graph, search.program.signatures, search.commands, search.spokesmen, search.offers, search.limits
        )


def _extracted(graph: Graph, saturated: Saturated, search: _Search) -> Region:
    signatures, clock = search.program.signatures, search.clock
    with clock.stage("read"):
        selection = Selection(saturated, signatures, search.costs)
    with clock.stage("extract"):
        solution = solve(selection.problem, time_limit=search.time_limit)
    with clock.stage("emit"):
        decoder = Decoder(selection, solution)
        steps = decoder.run()
        input_cost, rewrites = baseline(graph, signatures, search.costs)
        input_cost += selection.input_constant_cost
        annotated = any(signatures[n.signature].is_moved for n in graph.nodes if n.kind == "op")
    return Region(graph, saturated, selection, solution, decoder, steps, input_cost, rewrites, annotated)


def check_module(mod: Any) -> None:
    """Structure only: types are checked once per distinct op when the module is read."""
    if not isinstance(mod, tvm.IRModule):
        raise MalformedModuleError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    try:
        relax.analysis.well_formed(mod, check_ty=False)
    except Exception as error:
        raise MalformedModuleError(f"the module is not well formed: {str(error).strip()}") from error


def _check_axis_groups(program: Program, target: Any) -> None:
    """Layouts that annotations ask for have no more groups of axes than the target's memory; :class:`TargetError`."""
    for graph in program.graphs:
        for node in graph.nodes:
            signature = program.signatures.get(node.signature)
            frozen = None if signature is None else signature.frozen
            if signature is None or frozen is None:
                continue
            sides = [(f"operand {i}", fmt) for i, fmt in enumerate(frozen.operands)]
            sides += [(f"result {i}", fmt) for i, fmt in enumerate(frozen.results)]
            for side, fmt in sides:
                if fmt.separators:
                    where = f"{graph.function}: {signature.name} bound to {node.label!r}: {side}"
                    _check_groups_of(fmt, target, where)


def _check_groups_of(fmt: Format, target: tvm.target.Target, where: str) -> None:
    held = axis_groups(target, fmt.scope)
    if len(fmt.groups) > held:
        raise TargetError(
            f"{where}: the layout {fmt} has {len(fmt.groups)} groups of physical axes, "
            f"but {fmt.scope} memory of target {str(target.kind.name)!r} holds {held}"
        )


__all__ = ["DesiredLayouts", "OptimizeLayout", "Options", "compile", "optimize", "plan"]
