"""Saturation of one region: everything that the rules find in a graph.

In: a graph, the commands of the rules, what may replace its ops, limits. Out: :class:`Saturated`. The graph is loaded
in bulk, the phases of the rules run in turn, and the questions that rules ask are answered in batches until none is
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eqsat_layout.egraph.engine import Ending, Engine
from eqsat_layout.egraph.flows import Spokesman
from eqsat_layout.egraph.foresight import Foresight
from eqsat_layout.egraph.limits import Budget, Limits, Stop
from eqsat_layout.egraph.making import Builder, Maker, TooManyError
from eqsat_layout.egraph.names import Names
from eqsat_layout.egraph.op_answers import OpAnswers
from eqsat_layout.egraph.operands import OperandLists
from eqsat_layout.egraph.questions import QuestionRounds
from eqsat_layout.egraph.rows import GraphRows, alternative_rows
from eqsat_layout.egraph.rule_forms import Rule, rules_of
from eqsat_layout.egraph.rule_notes import Experience, unmatched
from eqsat_layout.egraph.rules import Command, is_own, without_making
from eqsat_layout.egraph.saturated import OpTerm, Saturated
from eqsat_layout.egraph.tables import Row, Tables
from eqsat_layout.graph.graph import Graph, Signature, TensorType
from eqsat_layout.implementations.offers import Offers

_SHOWN_RULES: Final = 3


def saturate(
    graph: Graph,
    signatures: dict[str, Signature],
    commands: Sequence[Command],
    spokesmen: Mapping[str, Spokesman] | None = None,
    offers: Offers | None = None,
    limits: Limits | None = None,
    builders: Mapping[str, Builder] | None = None,
) -> Saturated:
    """Runs all rules on ``graph``; ``spokesmen`` are the user's flow callbacks, by the keys of signatures.

    ``offers`` are other implementations of its ops; their signatures are among ``signatures``. Those of the ops that
    rules make are added there. ``builders``: what rules written in Python make, by name. Where a limit is hit,
    ``stops`` and ``notes`` say which, and the tables hold what was found until then.
    """
    size = sum(1 + len(node.inputs) for node in graph.nodes)
    one_per_file = {command.file: command for command in commands}
    budget = Budget(limits or Limits(), size, is_guarded=not all(map(is_own, one_per_file.values())))
    engine = Engine(commands if budget.is_guarded else without_making(commands))
    maker = Maker(signatures, graph.symbols, builders) if budget.is_guarded else None
    saturation = _Saturation(engine, commands, graph, signatures, spokesmen, offers or Offers(), budget, maker)
    saturated = saturation.run()
    saturated.notes += [_in_words(stop, graph.function, commands) for stop in saturated.stops]
    return saturated


def _in_words(stop: Stop, function: str, commands: Sequence[Command]) -> str:
    rules = _at_work(stop.rules, commands)[:_SHOWN_RULES]
    still = f"; still at work: {', '.join(map(_named, rules))}" if rules else ""
    return (
        f"{function}: the rules of phase {stop.phase!r} were stopped by the limit of {stop.limit}{still}; "
        "what they had found is used"
    )


def _at_work(keys: Sequence[str], commands: Sequence[Command]) -> list[tuple[Rule, Command]]:
    """The rules of these keys, those of the user's in front."""
    by_key = {rule.key: (rule, command) for command in commands for rule in rules_of(command)}
    return sorted((by_key[key] for key in keys), key=lambda pair: is_own(pair[1]))


def _named(pair: tuple[Rule, Command]) -> str:
    rule, _ = pair
    said = f"rule {rule.name!r}" if rule.is_named else "the rule"
    return f"{said} of {rule.place}"


class _Saturation:
    def __init__(
        self,
        engine: Engine,
        commands: Sequence[Command],
        graph: Graph,
        signatures: Mapping[str, Signature],
        spokesmen: Mapping[str, Spokesman] | None,
        offers: Offers,
        budget: Budget,
        maker: Maker | None,
    ):
        self._budget = budget
        self._stops: list[Stop] = []
        self._engine, self._commands = engine, commands
        self._graph, self._signatures = graph, signatures
        self._offers = offers
        self._names = Names()
        used = {node.signature for node in graph.nodes if node.kind == "op"}
        used |= {node.signature for k in used for g in offers.graphs.get(k, ()) for node in g.graph.nodes}
        known = {k: s for k, s in signatures.items() if k in used}
        self._answers = OpAnswers(known, self._names, spokesmen=spokesmen, offers=offers, maker=maker)
        self._questions = QuestionRounds(engine, self._answers, budget, frozenset(spokesmen or ()))
        self._types_between: dict[int, TensorType] = {}
        self._rounds = 0
        self._notes: list[str] = []

    def run(self) -> Saturated:
        self._load()
        self._phase("logical")
        self._settled()
        self._phase("flow")
        self._build()
        if self._answers.refused:
            self._notes.append(f"{self._answers.refused} layouts were not explored: too many for one tensor shape")
        tables = self._engine.tables()
        e_nodes, e_classes = tables.enodes_and_classes(("Tensor", "Args"))
        refs = {i: handle for i, handle in tables.rows("Ref")}
        types: dict[Any, TensorType | None] = {}
        for i, node in enumerate(self._graph.nodes):
            types.setdefault(refs[i], node.type)
        for ref, ty in self._types_between.items():
            types.setdefault(refs[ref], ty)
        constants = [(handle, name) for name, handle in tables.rows("Const")]
        terms = self._made_terms(tables, types, constants)
        return Saturated(
            self._graph,
            self._names,
            tables,
            types,
            refs,
            constants,
            terms,
            self._rounds,
            e_nodes,
            e_classes,
            self._notes,
            self._answers.refusals,
            self._stops,
            self._engine.history,
            self._commands,
            self._experience(tables),
            self._budget,
            self._offers.placement.memories,
        )

    def _experience(self, tables: Tables) -> Experience:
        """What became of the user's rules."""
        if not self._budget.is_guarded:
            return Experience()
        types: dict[Any, str] = {tensor: name for tensor, name in tables.rows("typed")}
        pairs = {(types.get(y), types.get(t)) for y, t in tables.rows("may-become")}
        misfits = tuple(sorted((y, t) for y, t in pairs if y is not None and t is not None and y != t))
        unmet = {} if self._stops else unmatched(self._commands, self._engine.matches, self._engine.holds)
        declined = tuple(name for name in self._answers.declined if name not in self._answers.made)
        return Experience(unmet, self._answers.not_made, misfits, declined)

    def _made_terms(
        self, tables: Tables, types: dict[Any, TensorType | None], constants: Iterable[tuple[Any, str]]
    ) -> dict[Any, OpTerm]:
        """The terms that only rules made; their types are added to ``types``."""
        unknown = [(k, a, y) for k, a, y in tables.rows("Op") if y not in types]
        if not unknown:
            return {}
        operands = OperandLists(tables)
        ops = [(k, operands.of(a), y) for k, a, y in unknown]
        gets = [(i, x, y) for i, x, y in tables.rows("Get") if y not in types]
        terms: dict[Any, OpTerm] = {}
        known = {*types, *(y for y, _ in constants)}
        before = -1
        while before < len(types) + len(terms):
            before = len(types) + len(terms)
            for k, own, y in ops:
                if y not in known and known.issuperset(own):
                    known.add(y)
                    terms[y] = ("Op", (k, *own))
                found = None if y in types else self._answers.result_type(k, types.get(own[0] if own else None))
                types.update({y: found} if found is not None else {})
            for i, x, y in gets:
                if y not in known and x in known:
                    known.add(y)
                    terms[y] = ("Get", (i, x))
        made_by = {y: self._signatures[k] for k, _, y in ops if k in self._signatures}
        for i, x, y in gets:
            if y not in types and x in made_by:
                types[y] = made_by[x].results[i]
        return terms

    def _load(self) -> None:
        rows = self._program_rows()
        for relation, row in self._answers.facts():
            rows.setdefault(relation, []).append(row)
        for relation, row in self._names.take_new_rows():
            rows.setdefault(relation, []).append(row)
        self._engine.load({relation: _unique(content) for relation, content in rows.items()})
        self._engine.step("handles")
        self._engine.step("load")

    def _program_rows(self) -> dict[str, list[Row]]:
        rows = GraphRows(self._graph, self._signatures, self._answers, self._names, "")
        self._types_between = rows.types_between
        found: dict[str, list[Row]] = {
            "row-ref": [(i,) for i in range(rows.refs)],
            "row-list": [(i,) for i in rows.lists],
            "row-param": rows.params,
            "row-const": rows.constants,
            "row-op": rows.ops,
            "row-get": rows.gets,
            "row-end": rows.ends,
            "row-arg": rows.args,
            "row-type": self._outer_types(),
            "row-led": self._led(),
            "row-goal": sorted({(i, self._goal_format(i)) for i, _ in self._graph.goals}),
        }
        done: set[str] = set()
        for key in sorted({node.signature for node in self._graph.nodes if node.kind == "op"}):
            for graph in self._offers.graphs.get(key, ()):
                if graph.name not in done:
                    done.add(graph.name)
                    own = GraphRows(
                        graph.graph, self._signatures, self._answers, self._names, f"alternative{len(done)}/"
                    )
                    for relation, content in alternative_rows(graph, own).items():
                        found.setdefault(relation, []).extend(content)
        return found

    def _outer_types(self) -> list[Row]:
        """The types of what comes from outside, for rules of the user's that ask for ops."""
        outer = [(i, n.type) for i, n in enumerate(self._graph.nodes) if n.kind in ("param", "const")]
        return [(i, self._names.type(ty)) for i, ty in outer if ty is not None and self._budget.is_guarded]

    def _goal_format(self, i: int) -> str:
        return self._names.row_major(self._graph.value_types(i, self._signatures))

    def _led(self) -> list[Row]:
        """Bindings that are read by no op which runs in all layouts that are known of its operands."""
        nodes = self._graph.nodes
        leading = {value for node in nodes if node.signature in self._offers.free for value in node.inputs}
        return [(value,) for value, node in enumerate(nodes) if node.kind == "op" and value not in leading]

    def _phase(self, ruleset: str) -> None:
        """Saturates and answers until no new question is asked, or a limit is hit."""
        self._budget.start(self._engine.size())
        rounds = 0
        while rounds < self._budget.rounds:
            outcome = self._engine.saturate(ruleset, self._budget)
            if isinstance(outcome, Stop):
                return self._stops.append(outcome)
            try:
                rows = self._questions.answer_all()
            except TooManyError as error:
                return self._stops.append(Stop(ruleset, str(error), self._engine.at_work))
            if rows or outcome == "done":
                rounds, self._rounds = rounds + 1, self._rounds + 1
            if self._budget.seconds_left <= 0:
                return self._stops.append(Stop(ruleset, self._budget.exceeded(0) or "time"))
            if not rows and outcome == "done":
                return None
            self._engine.load(rows)
        self._stops.append(Stop(ruleset, f"{self._budget.rounds} rounds of new questions"))

    def _settled(self) -> None:
        """No value is joined to another any more. Rules that nobody has tried may join some yet."""
        self._phase("settle")
        if self._budget.is_guarded:
            return
        tables = self._engine.tables()
        constants = {y for _, y in tables.rows("Const")}
        results = [(key, y) for key, _, y in tables.rows("Op")]
        computed = {key for key, y in results if y not in constants}
        self._answers.folded = frozenset(key for key, _ in results) - computed
        self._questions.foresight = Foresight(tables, self._names)

    def _build(self) -> None:
        """The last phase, in which nothing is asked."""
        self._budget.start(self._engine.size())
        outcome: Ending = "paused"
        while outcome == "paused":
            outcome = self._engine.saturate("build", self._budget)
        if isinstance(outcome, Stop):
            self._stops.append(outcome)


def _unique(rows: Sequence[Row]) -> list[Row]:
    return list(dict.fromkeys(rows))
