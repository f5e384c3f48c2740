"""The whole way: import, saturate, extract, emit, compile.

In: a Relax IRModule. Out: an equivalent one that costs no more, or what it was where nothing is gained.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import tvm
from tvm import relax

from eqsat_layout.egraph.answers import Refused
from eqsat_layout.egraph.implementations import UserCandidates, check_user_candidates, make_offers
from eqsat_layout.egraph.offers import Offers
from eqsat_layout.egraph.rules import Command, read_commands, rule_files
from eqsat_layout.egraph.saturate import Saturated, saturate
from eqsat_layout.egraph.user_flows import Spokesman, flow_callbacks, user_flows
from eqsat_layout.errors import MalformedModuleError, TargetError
from eqsat_layout.extract.baseline import Rewrite, as_written, baseline
from eqsat_layout.extract.cost import CostModel, dtype_bytes
from eqsat_layout.extract.decode import Decoder
from eqsat_layout.extract.frontier import solve
from eqsat_layout.extract.problem import Solution
from eqsat_layout.extract.selection import Selection
from eqsat_layout.graph.emit import emit_module
from eqsat_layout.graph.frozen import DesiredLayouts
from eqsat_layout.graph.graph import Graph, Program
from eqsat_layout.graph.importer import import_module
from eqsat_layout.graph.steps import Convert, Steps
from eqsat_layout.maps import Format
from eqsat_layout.report import Plan, Refusal, Stats, Transform, format_seconds
from eqsat_layout.targets import axis_groups, channel_blocks, default_costs, lower, normalize_target, prepare
from eqsat_layout.tir.callbacks import FlowCallback

_IMPROVEMENT = 1e-9


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
    costs = options.get("cost_model") or default_costs(checked)
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
    search = _Search(program, commands, costs, options.get("time_limit"), clock, spoken.by_key, offers)
    regions = [_plan_region(graph, search) for graph in program.graphs]
    better = [r for r in regions if r.is_taken]
    with clock.stage("emit"):
        module = emit_module(mod, [(r.graph, r.steps) for r in better], program.signatures) if better else mod
    if options.get("validate") and better:
        from eqsat_layout.soundness.validate import check_equal

        with clock.stage("validate"):
            check_equal(mod, module)
    return _summary(module, regions, search)


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


@dataclass
class _Region:
    graph: Graph
    saturated: Saturated
    selection: Selection
    solution: Solution
    steps: Steps
    input_cost: float
    input_rewrites: list[Rewrite]
    annotated: bool

    @property
    def is_taken(self) -> bool:
        """The plan replaces the input: it is cheaper, or annotations ask for layouts that the input does not have."""
        return self.annotated or self.solution.cost < self.input_cost * (1 - _IMPROVEMENT)

    @property
    def cost(self) -> float:
        return self.solution.cost if self.is_taken else self.input_cost


def _plan_region(graph: Graph, search: _Search) -> _Region:
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
    return _Region(graph, saturated, selection, solution, steps, input_cost, rewrites, annotated)


def _desires(region: _Region, search: _Search) -> Iterator[str]:
    """A note where the desired layouts cost more than those that the program was written in."""
    own = as_written(search.program.signatures)
    if not any(
        own[n.signature] is not search.program.signatures[n.signature] for n in region.graph.nodes if n.signature
    ):
        return
    written, _ = baseline(region.graph, own, search.costs)
    if region.solution.cost > written * (1 + _IMPROVEMENT):
        yield (
            f"{region.graph.function}: the desired layouts cost {format_seconds(region.solution.cost)}, modelled; "
            f"as it was written, the program costs {format_seconds(written)}"
        )


def _summary(module: Any, regions: list[_Region], search: _Search) -> Plan:
    clock, notes = search.clock, list(search.program.notes)
    for region in regions:
        notes += [*region.saturated.notes, *_desires(region, search)]
    return Plan(
        module=module,
        cost=sum(r.cost for r in regions),
        input_cost=sum(r.input_cost for r in regions),
        lower_bound=sum(min(r.solution.lower_bound, r.cost) for r in regions),
        transforms=tuple(t for r in regions for t in (_kept_transforms(r) if r.is_taken else _input_transforms(r))),
        input_transforms=tuple(t for r in regions for t in _input_transforms(r)),
        stats=Stats(
            ops=sum(r.graph.ops for r in regions),
            e_nodes=sum(r.saturated.e_nodes for r in regions),
            e_classes=sum(r.saturated.e_classes for r in regions),
            rounds=max((r.saturated.rounds for r in regions), default=0),
            seconds=clock.seconds,
            constant_bytes=sum(_constant_bytes(r) if r.is_taken else _input_constant_bytes(r) for r in regions),
            input_constant_bytes=sum(map(_input_constant_bytes, regions)),
        ),
        notes=tuple(dict.fromkeys(notes)),
        changed=any(r.is_taken for r in regions),
        refusals=lambda: tuple(dict.fromkeys(_refusal(r) for region in regions for r in region.saturated.refusals)),
    )


def _constant_bytes(region: _Region) -> int:
    """Bytes of the constants as they are laid out, each distinct one once."""
    uses = {(use.constant.key, use.format): use.constant for use in region.steps.constants()}
    return int(sum(fmt.elements() * dtype_bytes(constant.dtype) for (_, fmt), constant in uses.items()))


def _input_constant_bytes(region: _Region) -> int:
    types = [node.type for node in region.graph.nodes if node.kind == "const" and node.type is not None]
    return int(sum(Format.row_major(ty.shape).elements() * dtype_bytes(ty.dtype) for ty in types))


def _refusal(refused: Refused) -> Refusal:
    side = f"operand {refused.operand}" if refused.operand is not None else f"result {refused.result or 0}"
    return Refusal(refused.signature.name, side, refused.format.index_map, refused.reason)


def _kept_transforms(region: _Region) -> Iterator[Transform]:
    read = _TransformReader(region.graph.function)
    for step in region.steps.steps:
        if isinstance(step, Convert) and not step.before.serves_as(step.after):
            node = region.steps.origins[step.store]
            name = region.graph.nodes[node].label if node >= 0 else "?"
            yield read(Rewrite(name, step.type, step.before, step.after))


def _input_transforms(region: _Region) -> Iterator[Transform]:
    return map(_TransformReader(region.graph.function), region.input_rewrites)


class _TransformReader:
    """Rewrites as the report shows them; each distinct one is worked out once."""

    def __init__(self, function: str):
        self._function = function
        self._known: dict[Any, Transform] = {}

    def __call__(self, rewrite: Rewrite) -> Transform:
        key = (rewrite.type, rewrite.before.key, rewrite.after.key)
        if key not in self._known:
            self._known[key] = self._read(rewrite)
        return replace(self._known[key], tensor=rewrite.name)

    def _read(self, rewrite: Rewrite) -> Transform:
        before, after = rewrite.before, rewrite.after
        inverse = before.index_map.inverse()
        index_map = after.index_map
        if inverse is not None and before.padded_shape == after.padded_shape:
            index_map = after.index_map.after(inverse) or index_map
        elif inverse is not None and after.index_map.is_identity:
            index_map = inverse
        elements = rewrite.before.elements() + rewrite.after.elements()
        return Transform(
            function=self._function,
            tensor=rewrite.name,
            index_map=index_map,
            shape=rewrite.type.shape,
            dtype=rewrite.type.dtype,
            bytes=int(elements * dtype_bytes(rewrite.type.dtype)),
        )


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
