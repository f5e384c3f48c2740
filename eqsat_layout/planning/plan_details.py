"""A plan in detail: what it changes, which kernels it becomes, and pictures of it.

In: regions, the search that found them. Out: rows of changes, and the page; all of it worked out when asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eqsat_layout.egraph.rule_notes import users_rules
from eqsat_layout.extract.reasons import Production
from eqsat_layout.extract.region import Region
from eqsat_layout.graph.graph import Graph, Signature
from eqsat_layout.graph.steps import Convert, Run
from eqsat_layout.planning.built import Built
from eqsat_layout.planning.plan_names import PlanNames
from eqsat_layout.report.changes import AS_WRITTEN, GONE, TRANSFORMS, Change, joined_changes
from eqsat_layout.report.html.after import StepFacts, StepReason, picture_after
from eqsat_layout.report.html.before import picture_before
from eqsat_layout.report.html.picture import Picture, PictureWay
from eqsat_layout.report.records import KernelRecord

_SHOWN_WAYS = 8
LAYOUT_TRANSFORM = "layout transform"


class PlanDetails(PlanNames):
    """Describes the planned regions of one search."""

    def changes(self, built: Built) -> tuple[Change, ...]:
        """What the plan changes, and what it keeps."""
        return joined_changes(
            change for region in built.regions for change in self._changes(region, built.written_costs(region))
        )

    def kernels(self, built: Built) -> Iterator[KernelRecord]:
        """What the build makes of the plan."""
        ops = [self._ops(region) for region in built.regions]
        for kernel in built.kernels:
            own = [(number, part) for number, part in kernel.parts if part in ops[number]]
            if own:
                names, tensors = zip(*(ops[number][part] for number, part in own), strict=True)
                function = built.regions[own[0][0]].graph.function
                yield KernelRecord(function, kernel.name, names, tensors, kernel.cost, kernel.saved)

    def _ops(self, region: Region) -> dict[int, tuple[str, str]]:
        """What is run of a region, by its steps or, where these are not taken, by its nodes: the op and its tensor."""
        nodes = region.graph.nodes
        if not region.is_taken:
            return {i: (self.op_name(n.signature), n.label) for i, n in enumerate(nodes) if n.kind == "op"}
        return {
            step.store: (
                self.op_name(step.signature) if isinstance(step, Run) else LAYOUT_TRANSFORM,
                nodes[owner].label if (owner := region.owners[step.store]) >= 0 else "",
            )
            for step in region.steps.steps
            if isinstance(step, Run) or (isinstance(step, Convert) and not step.is_free)
        }

    def pictures(self, built: Built, copies: Sequence[Mapping[int, str]]) -> tuple[list[Picture], list[Picture]]:
        """Before and after. ``copies``: of each region why its copies stay, by their stores."""
        regions = built.regions
        before, after = [], []
        program, costs = self.search.program, self.search.costs
        titles = self.titles([r.graph for r in regions])
        for region, title, stays in zip(regions, titles, copies, strict=True):
            own = picture_before(region.graph, program.signatures, costs, region.input_fusion, self.names, title)
            before.append(own)
            if region.is_taken:
                facts = StepFacts(
                    costs=region.reasons.costs(),
                    kernels=built.last_parts(region),
                    reasons=dict(self._reasons(region)) | {store: StepReason(why) for store, why in stays.items()},
                    bindings=region.bindings,
                    owners=region.owners,
                    op_name=self.op_name,
                )
                own = picture_after(region.graph, region.steps, program.signatures, facts, self.names, title)
            else:
                own = self._with_ways(region, own)
            after.append(own)
        return before, after

    def _with_ways(self, region: Region, picture: Picture) -> Picture:
        """What is left as written, with the other ways there were."""
        ways = {
            node.binding: self._shown(region.reasons.ways_of_node(node.binding))
            for node in picture.nodes
            if node.kind == "op" and node.binding >= 0
        }
        return replace(picture, nodes=tuple(replace(node, ways=ways.get(node.binding, ())) for node in picture.nodes))

    def titles(self, graphs: Sequence[Graph]) -> list[str]:
        """What a person knows regions by: the function, which part of it, and whether it computes sizes only."""
        parts = Counter(graph.function for graph in graphs)
        seen: Counter[str] = Counter()
        titles = []
        for graph in graphs:
            seen[graph.function] += 1
            title = graph.function
            if parts[graph.function] > 1:
                title += f", part {seen[graph.function]} of {parts[graph.function]}"
            titles.append(f"{title} (shapes only)" if computes_shapes(graph) else title)
        return titles

    def _changes(self, region: Region, written: Mapping[int, float]) -> Iterator[Change]:
        graph, signatures = region.graph, self.search.program.signatures
        if not region.is_taken:
            yield from (self._kept(graph, i, cost) for i, cost in written.items())
            return
        costs, owners = region.reasons.costs(), region.owners
        spent: dict[int, float] = {}
        for step in region.steps.steps:
            if isinstance(step, Run):
                owner = owners.get(step.store, -1)
                spent[owner] = spent.get(owner, 0.0) + costs[step.store]
        last = {
            binding: step
            for step in region.steps.steps
            if isinstance(step, Run) and (binding := region.bindings.get(step.store, -1)) >= 0
        }
        behind = self._users_rules_behind(region)
        for i, cost in written.items():
            run = last.get(i)
            key, label = graph.nodes[i].signature, graph.nodes[i].label
            was = self._was(signatures[key])
            now = GONE if run is None else self._now(run, signatures[key], was)
            rules = behind.get(run.store, "") if run is not None and run.signature != key else ""
            yield Change(self.op_name(key), was, now, cost, spent.pop(i, 0.0), (label,), rules)
        copies = [s for s in region.steps.steps if isinstance(s, Convert) and not s.is_free]
        if copies or region.input_rewrites:
            moved = region.input_cost - region.selection.input_constant_cost - sum(written.values())
            after = sum(costs[copy.store] for copy in copies)
            names = [r.name for r in region.input_rewrites] or [
                graph.nodes[region.owners[copy.store]].label for copy in copies
            ]
            was, now = f"{len(region.input_rewrites):,}", f"{len(copies):,}"
            yield Change(TRANSFORMS, was, now, max(moved, 0.0), after, tuple(names))

    def _users_rules_behind(self, region: Region) -> Mapping[int, str]:
        """The rules of the user's that a step comes from, by its store."""
        theirs = {rule.label for rule in users_rules(self.search.commands)}
        choices = region.reasons.choices if theirs else ()
        return {one.step.store: ", ".join(rule for rule in one.rules if rule in theirs) for one in choices}

    def _kept(self, graph: Graph, i: int, cost: float) -> Change:
        signatures = self.search.program.signatures
        was = self._was(signatures[graph.nodes[i].signature])
        return Change(self.op_name(graph.nodes[i].signature), was, AS_WRITTEN, cost, cost, (graph.nodes[i].label,))

    def _was(self, signature: Signature) -> str:
        results = signature.as_written[1] if signature.frozen is None else signature.frozen.results
        return self.names(results[0]) if results else ""

    def _now(self, step: Run, written: Signature, was: str) -> str:
        operands, results = step.layouts(self.search.program.signatures)
        layout = self.names(results[0]) if results else ""
        algorithm = "" if step.signature == written.key else self.algorithms.get(step.signature, "")
        name = self.op_name(step.signature)
        other = algorithm or ("" if name == self.op_name(written.key) else name)
        if other:
            return f"{other}, {layout}"
        if layout != was:
            return layout
        own = written.as_written[0] if written.frozen is None else written.frozen.operands
        names = zip(self.names.operands(written, operands), self.names.operands(written, own), strict=False)
        reads = [f"operand {i}: {now}" for i, (now, then) in enumerate(names) if now != then]
        return ", ".join([layout, *reads]) if reads and step.signature == written.key else AS_WRITTEN

    def _reasons(self, region: Region) -> Iterator[tuple[int, StepReason]]:
        for choice in region.reasons.choices:
            shown = self._shown(region.reasons.ways(choice.step.store))
            yield choice.step.store, StepReason(self.how(choice.step.signature, choice.origin), choice.rules, shown)

    def _shown(self, ways: Sequence[Production]) -> tuple[PictureWay, ...]:
        """The cheapest, and of each algorithm the cheapest."""
        best: dict[str, Production] = {}
        for way in ways:
            best.setdefault(self.algorithms.get(way.signature, ""), way)
        others = [way for way in ways if way not in best.values()]
        shown = [*best.values(), *others[: max(0, _SHOWN_WAYS - len(best))]]
        told: dict[tuple[str, str], PictureWay] = {}
        for way in sorted(shown, key=lambda way: way.cost):
            written = self.search.program.signatures[way.signature].as_written[1]
            how, layout = self.how(way.signature, way.origin), self.names(way.format or next(iter(written), None))
            told.setdefault((how, layout), PictureWay(how, layout, way.cost))
        return tuple(told.values())


def computes_shapes(graph: Graph) -> bool:
    """All that the graph makes are integers in vectors: sizes of other tensors."""
    types = [node.type for node in graph.nodes if node.kind in ("op", "get")]
    return bool(types) and all(
        t is not None and len(t.shape) <= 1 and t.dtype.startswith(("int", "uint")) for t in types
    )
