"""What a plan tells of itself when it is asked: changes, kernels, reasons, refusals, its page.

In: a choice. Out: records of the report. Tables and pictures are imported with this module, and this with the first
question: planning itself needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat_layout.egraph.flow_answers import RefusedFormat
from eqsat_layout.egraph.rule_notes import users_rules
from eqsat_layout.extract.baseline import Rewrite
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Program
from eqsat_layout.graph.steps import Convert, Given, Run, Steps
from eqsat_layout.planning.built import Built
from eqsat_layout.planning.choice import Choice
from eqsat_layout.planning.plan_details import PlanDetails
from eqsat_layout.planning.told_transforms import TransformReader, label
from eqsat_layout.report.changes import GONE, Change
from eqsat_layout.report.explain import ChosenOp, Explanation, StayingTransform
from eqsat_layout.report.figures import format_seconds
from eqsat_layout.report.html.page import Summary, render
from eqsat_layout.report.plan import Plan
from eqsat_layout.report.plan_tables import page_figures
from eqsat_layout.report.records import KernelRecord, Refusal


@dataclass(frozen=True)
class Told:
    """Answers for one choice."""

    choice: Choice

    @property
    def built(self) -> Built:
        """What the build makes one kernel of."""
        return self.choice.built

    @cached_property
    def details(self) -> PlanDetails:
        """Names, changes, kernels, pictures."""
        return PlanDetails(self.choice.search)

    def changes(self) -> tuple[Change, ...]:
        """See :attr:`Plan.changes`."""
        return self.details.changes(self.built)

    def kernels(self) -> tuple[KernelRecord, ...]:
        """See :attr:`Plan.kernels`."""
        return tuple(self.details.kernels(self.built))

    def gained_nothing(self, said: Sequence[str]) -> Iterator[str]:
        """The rules of the user's that were applied without a trace in what is run, but for those that ``said`` speaks
        of already. Where an op is gone, a rule may be why, and nothing is said."""
        text = "\n".join(said)
        rules = [rule for rule in users_rules(self.choice.search.commands) if rule.label not in text]
        if not rules or any(change.now == GONE for change in self.changes()):
            return
        regions = self.choice.regions
        taken = [region for region in regions if region.is_taken]
        if unknown := {region.reasons.unknown_rules for region in taken} - {""}:
            yield from (f"the rules behind the plan are {reason}" for reason in sorted(unknown))
            return
        behind = {label for region in taken for one in region.reasons.choices for label in one.rules}
        for rule in rules:
            matched = any(rule.key not in region.saturated.experience.unmatched for region in regions)
            if matched and rule.label not in behind:
                yield f"rule {rule.label} was applied, and gained nothing: nothing that is run came from it"

    def explanation(self, plan: Plan) -> Explanation:
        """See :meth:`Plan.explain`."""
        transforms: list[StayingTransform] = []
        choices: list[ChosenOp] = []
        regions, details = self.choice.regions, self.details
        for region in self.choice.taken:
            transforms += _staying(region, details).values()
            choices += _chosen(region, self.choice.search.program, details)
        unchanged = tuple(_unchanged(regions, details))
        slow = tuple(self.built.slow_kernels)
        return Explanation(tuple(transforms), tuple(choices), plan.kernels, plan.cost, unchanged, slow)

    def page(self, title: str, plan: Plan) -> str:
        """See :meth:`Plan.html`."""
        regions, details, built = self.choice.regions, self.details, self.built
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

    def refusals(self) -> tuple[Refusal, ...]:
        """What did not go through ops, or was not offered them: of the program's own, then of the steps of
        algorithms."""
        details = self.details
        refused = [r for region in self.choice.regions for r in region.saturated.refusals]
        own, inner = (
            [_refusal(r, details) for r in refused if (r.signature.key in details.algorithms) is is_inner]
            for is_inner in (False, True)
        )
        return tuple(dict.fromkeys([*own, *details.not_held(), *details.not_offered(), *inner]))


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
    read = TransformReader(region.graph.function, details)
    ops = {s.store: details.op_name(s.signature) for s in region.steps.steps if isinstance(s, Run)}
    for stay in region.reasons.stays():
        step = stay.step
        transform = read(Rewrite(label(region, step.store), step.type, step.before, step.after))
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
            label(region, choice.step.store),
            details.op_name(choice.step.signature),
            details.names.operands(program.signatures[choice.step.signature], operands),
            ", ".join(map(details.names, results)),
            details.how(choice.step.signature, choice.origin),
            choice.rules,
            choice.cost,
            choice.others,
        )


def _refusal(refused: RefusedFormat, details: PlanDetails) -> Refusal:
    signature, number = refused.signature, refused.operand
    side = f"operand {number}" if number is not None else f"result {refused.result or 0}"
    fmt = refused.format
    layout = details.names(fmt) if number is None else details.names.operand(signature, number, fmt)
    return Refusal(details.full_name(signature.key), side, fmt.index_map, refused.reason, layout)
