"""The whole way: import, saturate, extract, emit, compile.

In: a Relax IRModule. Out: an equivalent one that costs no more, or what it was where nothing is gained.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

import tvm
from tvm import relax

from eqsat_layout.egraph.implementations import UserCandidates, check_user_candidates, make_offers
from eqsat_layout.egraph.offers import Offers
from eqsat_layout.egraph.rules import Command, read_commands, rule_files
from eqsat_layout.egraph.saturate import saturate
from eqsat_layout.egraph.user_flows import Spokesman, flow_callbacks, user_flows
from eqsat_layout.errors import MalformedModuleError, TargetError
from eqsat_layout.extract.baseline import baseline
from eqsat_layout.extract.cost import CostModel
from eqsat_layout.extract.database import Database
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.frontier import solve
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


class Options(TypedDict, total=False):
    """What :func:`optimize`, :func:`plan`, :func:`compile` and :func:`OptimizeLayout` take besides module and target.

    ``rules``: further ``.egg`` files. ``desired_layouts``: layouts by op, as TVM's ``ConvertLayout`` takes them, or
    callbacks; best effort, notes say where they can't be had or cost more. ``candidates``: False offers no other
    implementations of convolutions and matrix products than the written ones; a dictionary adds the user's own
    (:data:`~eqsat_layout.egraph.implementations.UserCandidates`). ``approx``: also those that round differently, such
    as Winograd. ``flows``: how layouts go through ops, in place of what their TIR says
    (:class:`~eqsat_layout.tir.callbacks.FlowCallback`). ``cost_model``: in place of the target's roofline.
    ``time_limit``: of the extraction, in seconds. ``validate``: run both modules on random inputs, raise where they
    differ.
    """

    rules: Iterable[str | Path] | None
    desired_layouts: DesiredLayouts | None
    cost_model: CostModel | None
    time_limit: float | None
    validate: bool
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
    with _collector_paused():
        return _plan(mod, target, options)


def _plan(mod: Any, target: Any, options: Options) -> Plan:
    _check_module(mod)
    checked = normalize_target(target)
    clock = _Clock()
    with clock.stage("rules"):
        commands = [command for path in rule_files(options.get("rules")) for command in read_commands(path)]
    with clock.stage("import"):
        callbacks = flow_callbacks(options.get("flows"))
        program = import_module(mod, options.get("desired_layouts"), callbacks)
        _check_axis_groups(program, checked)
        spoken = user_flows(callbacks, program.signatures)
    program.notes += spoken.notes
    with clock.stage("candidates"):
        offers = _offers(program, checked, options, spoken.by_key)
        costs = options.get("cost_model") or _own_costs(program, checked)
    search = _Search(program, commands, costs, options.get("time_limit"), clock, spoken.by_key, offers)
    regions = [_plan_region(graph, search) for graph in program.graphs]
    better = [r for r in regions if r.is_taken]
    with clock.stage("emit"):
        module = emit_module(mod, [(r.graph, r.steps) for r in better], program.signatures) if better else mod
    if options.get("validate") and better:
        from eqsat_layout.soundness.validate import check_equal

        with clock.stage("validate"):
            check_equal(mod, module)
    return summarise(module, regions, program, costs, clock.seconds)


def _own_costs(program: Program, target: Any) -> CostModel:
    """The target's roofline, refined by what was measured on this machine if anything was."""
    known = Database().read()
    program.notes += known.notes
    return known_costs(target, program.signatures.values(), known)


def _offers(program: Program, target: Any, options: Options, spoken_for: Iterable[str]) -> Offers:
    candidates = options.get("candidates", True)
    if candidates is False:
        return Offers()
    own = None if candidates is True else check_user_candidates(candidates)
    blocks = channel_blocks(target)
    return make_offers(program, blocks, own, approx=options.get("approx", True), spoken_for=spoken_for)


@contextmanager
def _collector_paused() -> Iterator[None]:
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


@dataclass
class _Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class _Search:
    """What the planning of every region is given."""

    program: Program
    commands: list[Command]
    costs: CostModel
    time_limit: float | None
    clock: _Clock
    spokesmen: Mapping[str, Spokesman]
    offers: Offers


def _plan_region(graph: Graph, search: _Search) -> Region:
    signatures, clock = search.program.signatures, search.clock
    with clock.stage("saturate"):
        saturated = saturate(graph, signatures, search.commands, search.spokesmen, search.offers)
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


def _check_module(mod: Any) -> None:
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
