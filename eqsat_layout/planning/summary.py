"""From planned regions to the plan that the user gets.

In: regions with their selections, solutions and steps. Out: :class:`Plan`, whose explanation and pictures are worked
out when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import tvm

from eqsat_layout.cost.model import CostModel, dtype_bytes
from eqsat_layout.egraph.rule_notes import users_rules
from eqsat_layout.extract.baseline import Rewrite, as_written, baseline
from eqsat_layout.extract.region import IMPROVEMENT, Region
from eqsat_layout.graph.graph import Program
from eqsat_layout.graph.steps import Convert
from eqsat_layout.maps import Format
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.plan_names import PlanNames
from eqsat_layout.planning.search import Search
from eqsat_layout.planning.told_transforms import TransformReader, label
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.plan import Plan
from eqsat_layout.report.records import Stats, Transform
from eqsat_layout.tir.computation import SYMBOL_SIZE

if TYPE_CHECKING:
    from eqsat_layout.planning.told import Told


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


def _kept_back(details: PlanNames) -> Iterator[str]:
    """What symbols kept from being offered."""
    for op, algorithms in details.kept_back().items():
        yield f"{op}: {', '.join(algorithms)} not offered, because sizes are known at run time only"


def _slow_ops(search: Search, details: PlanNames) -> Iterator[str]:
    """What the build would say of ops that nobody knows element by element; explanations say it of all kernels."""
    for key, op in search.program.signatures.items():
        if op.computation is None and op.lowered is not None:
            name = details.full_name(key)
            mod = tvm.IRModule({name: op.func.with_attr("global_symbol", name)})
            yield from search.target.slow_kernels(mod)


def summarise(choice: Choice) -> Plan:
    """The plan that was chosen."""
    regions, search = choice.regions, choice.search
    program, costs, details = search.program, search.costs, PlanNames(search)

    @cache
    def told() -> Told:
        from eqsat_layout.planning.told import Told  # tables and pictures, which planning does without

        return Told(choice)

    notes = [*program.notes, *_assumed_sizes(program, search.assumed), *_kept_back(details)]
    written = [_written_cost(region, program, costs) for region in regions]
    for region, cost in zip(regions, written, strict=True):
        notes += [*region.saturated.notes, *_desires(region, cost)]
    if users_rules(search.commands):
        notes += told().gained_nothing(notes)
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
        refusals=lambda: told().refusals(),
        told_changes=lambda: told().changes(),
        told_kernels=lambda: told().kernels(),
        explained=lambda plan: told().explanation(plan),
        page=lambda title, plan: told().page(title, plan),
    )


def _sum_written(regions: Sequence[Region], written: Sequence[float | None]) -> float | None:
    """The sum over the whole program; None where no layouts are asked for."""
    if all(cost is None for cost in written):
        return None
    pairs = zip(regions, written, strict=True)
    return sum(region.input_cost if cost is None else cost for region, cost in pairs)


def _constant_bytes(region: Region) -> int:
    """Bytes of the constants as they are laid out, each distinct one once."""
    uses = {(use.constant.key, use.format): use.constant for use in region.steps.constants()}
    return int(sum(fmt.elements() * dtype_bytes(constant.dtype) for (_, fmt), constant in uses.items()))


def _input_constant_bytes(region: Region) -> int:
    types = [node.type for node in region.graph.nodes if node.kind == "const" and node.type is not None]
    return int(sum(Format.row_major(ty.shape).elements() * dtype_bytes(ty.dtype) for ty in types))


def _kept_transforms(region: Region, details: PlanNames) -> Iterator[Transform]:
    read = TransformReader(region.graph.function, details)
    for step in region.steps.steps:
        if isinstance(step, Convert) and not step.before.serves_as(step.after):
            yield read(Rewrite(label(region, step.store), step.type, step.before, step.after))


def _input_transforms(region: Region, details: PlanNames) -> Iterator[Transform]:
    return map(TransformReader(region.graph.function, details), region.input_rewrites)
