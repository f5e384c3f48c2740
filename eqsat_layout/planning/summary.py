"""From planned regions to the plan that the user gets.

In: regions with their selections, solutions and steps. Out: :class:`Plan`, whose explanation and pictures are worked
out when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm

from eqsat_layout.cost.model import CostModel, dtype_bytes
from eqsat_layout.egraph.answers import RefusedFormat
from eqsat_layout.egraph.rule_notes import users_rules
from eqsat_layout.extract.baseline import Rewrite, as_written, baseline
from eqsat_layout.extract.region import IMPROVEMENT, Region
from eqsat_layout.graph.graph import Program
from eqsat_layout.graph.steps import Convert, Given, Run, Steps
from eqsat_layout.maps import Format
from eqsat_layout.planning.built import Built
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.plan_details import PlanDetails
from eqsat_layout.planning.search import Search
from eqsat_layout.report.changes import GONE
from eqsat_layout.report.explain import ChosenOp, Explanation, StayingTransform
from eqsat_layout.report.html.page import Summary, render
from eqsat_layout.report.plan import Plan, page_figures
from eqsat_layout.report.records import Refusal, Stats, Transform
from eqsat_layout.report.text import format_seconds
from eqsat_layout.tir.computation import SYMBOL_SIZE


def _written_cost(region: Region, program: Program, costs: CostModel) -> float | None:
    """What the region costs as it was written; None where no other layouts are asked for."""
    known = program.signatures
    own = as_written(known)
    if all(own[n.signature] is known[n.signature] for n in region.graph.nodes if n.signature):
        return None
    return baseline(region.graph, own, costs, region.input_fusion)[0] + region.selection.input_constant_cost


def _desires(region: Region, written: float | None) -> Iterator[str]:
    """A note where the desired layouts cost more than those that the program was written in."""
    if written is not None and region.solution.cost > written * (1 + IMPROVEMENT):
        yield (
            f"{region.graph.function}: the desired layouts cost {format_seconds(region.solution.cost)}, modelled; "
            f"as it was written, the program costs {format_seconds(written)}"
        )


def _assumed_sizes(program: Program, assumed: Mapping[str, int]) -> Iterator[str]:
    """What costs take the sizes for that are known at run time only."""
    symbols = sorted({name for graph in program.graphs for name in graph.symbols})
    if symbols:
        sizes = ", ".join(f"{name} for {assumed.get(name, SYMBOL_SIZE)}" for name in symbols)
        yield (
            f"costs take symbolic sizes as assumed: {sizes}; assume= (--assume) gives others, shapes= (--shape) sizes "
            "that are known, and several for one axis make a program for each"
        )


def _kept_back(details: PlanDetails) -> Iterator[str]:
    """What symbols kept from being offered."""
    for op, algorithms in details.kept_back().items():
        yield f"{op}: {', '.join(algorithms)} not offered, because sizes are known at run time only"


def _slow_ops(search: Search, details: PlanDetails) -> Iterator[str]:
    """What the build would say of ops that nobody knows element by element; explanations say it of all kernels."""
    for key, op in search.program.signatures.items():
        if op.computation is None and op.func is not None:
            name = details.full_name(key)
            mod = tvm.IRModule({name: op.func.with_attr("global_symbol", name)})
            yield from search.target.slow_kernels(mod)


def _gained_nothing(built: Built, search: Search, details: PlanDetails, said: Sequence[str]) -> Iterator[str]:
    """The rules of the user's that were applied without a trace in what is run, but for those that ``said`` speaks of
    already. Where an op is gone, a rule may be why, and nothing is said."""
    text = "\n".join(said)
    rules = [rule for rule in users_rules(search.commands) if rule.label not in text]
    if not rules or any(change.now == GONE for change in details.changes(built)):
        return
    regions = built.regions
    if unknown := {region.reasons.unknown_rules for region in regions if region.is_taken} - {""}:
        yield from (f"the rules behind the plan are {reason}" for reason in sorted(unknown))
        return
    behind = {label for region in regions if region.is_taken for one in region.reasons.choices for label in one.rules}
    for rule in rules:
        matched = any(rule.key not in region.saturated.experience.unmatched for region in regions)
        if matched and rule.label not in behind:
            yield f"rule {rule.label} was applied, and gained nothing: nothing that is run came from it"


def summarise(choice: Choice) -> Plan:
    """The plan that was chosen."""
    regions, search, built = choice.regions, choice.search, choice.built
    program, costs, details = search.program, search.costs, PlanDetails(search)
    notes = [*program.notes, *_assumed_sizes(program, search.assumed), *_kept_back(details)]
    written = [_written_cost(region, program, costs) for region in regions]
    for region, cost in zip(regions, written, strict=True):
        notes += [*region.saturated.notes, *_desires(region, cost)]
    notes += _gained_nothing(built, search, details, notes)
    notes += _slow_ops(search, details)
    return Plan(
        make_module=lambda: choice.module,
        cost=sum(r.cost for r in regions),
        input_cost=sum(r.input_cost for r in regions),
        written_cost=_sum_written(regions, written),
        ops=tuple(dict.fromkeys(map(details.full_name, program.signatures))),
        lower_bound=sum(min(r.solution.lower_bound, r.cost) for r in regions),
        transforms=tuple(
            t for r in regions for t in (_kept_transforms(r, details) if r.is_taken else _input_transforms(r, details))
        ),
        input_transforms=tuple(t for r in regions for t in _input_transforms(r, details)),
        stats=Stats(
            ops=sum(r.graph.ops for r in regions),
            e_nodes=sum(r.saturated.e_nodes for r in regions),
            e_classes=sum(r.saturated.e_classes for r in regions),
            rounds=max((r.saturated.rounds for r in regions), default=0),
            seconds=search.clock.seconds,
            constant_bytes=sum(_constant_bytes(r) if r.is_taken else _input_constant_bytes(r) for r in regions),
            input_constant_bytes=sum(map(_input_constant_bytes, regions)),
        ),
        notes=tuple(dict.fromkeys(notes)),
        changed=any(r.is_taken for r in regions),
        refusals=lambda: _refusals(regions, details),
        told_changes=lambda: details.changes(built),
        told_kernels=lambda: tuple(details.kernels(built)),
        explained=lambda plan: _explanation(built, program, details, plan),
        page=lambda title, plan: _page(title, plan, built, details),
    )


def _sum_written(regions: Sequence[Region], written: Sequence[float | None]) -> float | None:
    """The sum over the whole program; None where no layouts are asked for."""
    if all(cost is None for cost in written):
        return None
    pairs = zip(regions, written, strict=True)
    return sum(region.input_cost if cost is None else cost for region, cost in pairs)


def _explanation(built: Built, program: Program, details: PlanDetails, plan: Plan) -> Explanation:
    transforms: list[StayingTransform] = []
    choices: list[ChosenOp] = []
    regions = built.regions
    for region in regions:
        if region.is_taken:
            transforms += _staying(region, details).values()
            choices += _chosen(region, program, details)
    unchanged = tuple(_unchanged(regions, details))
    slow = tuple(built.slow_kernels)
    return Explanation(tuple(transforms), tuple(choices), plan.kernels, plan.cost, unchanged, slow)


def _unchanged(regions: Sequence[Region], details: PlanDetails) -> list[str]:
    """Why parts of the program are left as written."""
    titles = details.titles([r.graph for r in regions])
    return [_why_unchanged(r, title) for r, title in zip(regions, titles, strict=True) if not r.is_taken]


def _why_unchanged(region: Region, title: str) -> str:
    cost, bound = map(format_seconds, (region.input_cost, region.solution.lower_bound))
    if region.solution.proven:
        return f"{title} is unchanged: no program that was found costs less than it does as written, {cost}"
    return f"{title} is unchanged: none cheaper than as written, {cost}, was found; none can cost less than {bound}"


def _staying(region: Region, details: PlanDetails) -> dict[int, StayingTransform]:
    """The copies of a region by their stores."""
    found: dict[int, StayingTransform] = {}
    read = _TransformReader(region.graph.function, details)
    ops = {s.store: details.op_name(s.signature) for s in region.steps.steps if isinstance(s, Run)}
    for stay in region.reasons.stays():
        step = stay.step
        transform = read(Rewrite(_label(region, step.store), step.type, step.before, step.after))
        dearer = None if stay.without is None else stay.without - region.solution.cost
        wanted = tuple(dict.fromkeys(ops[user] for user in _users(region.steps, step.store) if user in ops))
        maker = ops.get(_maker(region.steps, step.source), "")
        found[step.store] = StayingTransform(transform, stay.cost, dearer, maker, wanted)
    return found


def _maker(steps: Steps, store: int) -> int:
    """The store whose step computes what ``store`` holds, copies and parts of results looked through."""
    made = {step.store: step for step in steps.steps}
    step = made[store]
    while not isinstance(step, Run | Given) and isinstance(step.source, int):
        step = made[step.source]
    return step.store


def _users(steps: Steps, store: int) -> Iterator[int]:
    """The stores that are made from ``store``, copies that cost nothing looked through."""
    for step in steps.steps:
        sources = step.operands if isinstance(step, Run) else (getattr(step, "source", None),)
        if store in [source for source in sources if isinstance(source, int)]:
            if isinstance(step, Run) or (isinstance(step, Convert) and not step.before.serves_as(step.after)):
                yield step.store
            else:
                yield from _users(steps, step.store)


def _chosen(region: Region, program: Program, details: PlanDetails) -> Iterator[ChosenOp]:
    for choice in region.reasons.choices:
        operands, results = choice.step.layouts(program.signatures)
        yield ChosenOp(
            region.graph.function,
            _label(region, choice.step.store),
            details.op_name(choice.step.signature),
            details.names.operands(program.signatures[choice.step.signature], operands),
            ", ".join(map(details.names, results)),
            details.how(choice.step.signature, choice.origin),
            choice.rules,
            choice.cost,
            choice.others,
        )


def _label(region: Region, store: int) -> str:
    node = region.owners.get(store, -1)
    return region.graph.nodes[node].label if node >= 0 else "?"


def _page(title: str, plan: Plan, built: Built, details: PlanDetails) -> str:
    regions = built.regions
    stays = [_staying(region, details) if region.is_taken else {} for region in regions]
    rows = [
        (t.transform.tensor, t.transform.layouts, t.transform.bytes, t.cost, t.reason)
        for own in stays
        for t in own.values()
    ]
    pictures = details.pictures(built, [{store: t.reason for store, t in own.items()} for own in stays])
    notes = tuple(dict.fromkeys([*plan.notes, *built.slow_kernels]))
    figures, plain, unchanged = page_figures(plan), details.names.plain, _unchanged(regions, details)
    return render(*pictures, Summary(title, figures, plan.changes, rows, notes, plain, unchanged))


def _constant_bytes(region: Region) -> int:
    """Bytes of the constants as they are laid out, each distinct one once."""
    uses = {(use.constant.key, use.format): use.constant for use in region.steps.constants()}
    return int(sum(fmt.elements() * dtype_bytes(constant.dtype) for (_, fmt), constant in uses.items()))


def _input_constant_bytes(region: Region) -> int:
    types = [node.type for node in region.graph.nodes if node.kind == "const" and node.type is not None]
    return int(sum(Format.row_major(ty.shape).elements() * dtype_bytes(ty.dtype) for ty in types))


def _refusals(regions: Sequence[Region], details: PlanDetails) -> tuple[Refusal, ...]:
    """What did not go through ops, or was not offered them: of the program's own, then of the steps of algorithms."""
    refused = [r for region in regions for r in region.saturated.refusals]
    own, inner = (
        [_refusal(r, details) for r in refused if (r.signature.key in details.algorithms) is is_inner]
        for is_inner in (False, True)
    )
    return tuple(dict.fromkeys([*own, *details.not_held(), *details.not_offered(), *inner]))


def _refusal(refused: RefusedFormat, details: PlanDetails) -> Refusal:
    signature, number = refused.signature, refused.operand
    side = f"operand {number}" if number is not None else f"result {refused.result or 0}"
    fmt = refused.format
    layout = details.names(fmt) if number is None else details.names.operand(signature, number, fmt)
    return Refusal(details.full_name(signature.key), side, fmt.index_map, refused.reason, layout)


def _kept_transforms(region: Region, details: PlanDetails) -> Iterator[Transform]:
    read = _TransformReader(region.graph.function, details)
    for step in region.steps.steps:
        if isinstance(step, Convert) and not step.before.serves_as(step.after):
            yield read(Rewrite(_label(region, step.store), step.type, step.before, step.after))


def _input_transforms(region: Region, details: PlanDetails) -> Iterator[Transform]:
    return map(_TransformReader(region.graph.function, details), region.input_rewrites)


class _TransformReader:
    """Rewrites as the report shows them; each distinct one is worked out once."""

    def __init__(self, function: str, details: PlanDetails):
        self._function, self._details = function, details
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
            before=self._details.names(before),
            after=self._details.names(after),
        )
