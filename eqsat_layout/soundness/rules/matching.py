"""Instances of rules: egglog itself says where in a model the bodies of rules match.

In: rules and models. Out: per rule, the rows of its variables for every match, as numbers of the model. Relations that
have no meaning, or that a user declares, are first filled by the rules that conclude nothing else, so that rules that
build on them find rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from eqsat_layout.egraph.engine import Engine
from eqsat_layout.egraph.expressions import Expr, show, substituted, variables
from eqsat_layout.egraph.limits import Budget, Limits, rehearsed
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rules import rules_dir
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.rules.merged_classes import SORTS, MergedClasses
from eqsat_layout.soundness.rules.model import Row, RuleModel
from eqsat_layout.soundness.rules.remarks import guards_of, heads
from eqsat_layout.soundness.rules.rule_base import RuleBase

_T = TypeVar("_T")
DERIVING_ROUNDS = 8
FEW = 12
"""Tensors and lists that a body of unrelated facts is matched with."""
TOGETHER_ROUNDS = 3
GROWTH = 3
"""Times as many rows as a model has, at which rules run no further together: what is wrong joins ever more."""
MOST = Limits(seconds=60.0, megabytes=200.0)
"""What somebody's rules may take to find all their matches in one small model: memory, as a rule, the same on every
machine; and time on the processor, as there are joins that find nothing."""
_HANDLES = {"Tensor": "FuzzTensor", "Args": "FuzzArgs"}


@dataclass(frozen=True)
class Watched:
    """A rule whose matches are looked for; ``variables`` are those of its body with their sorts."""

    rule: Rule
    relation: str
    variables: tuple[tuple[str, str], ...]


class Matcher:
    """An e-graph with the declarations of a rule base, ready to be filled with one model after the other."""

    def __init__(self, base: RuleBase, rules: Iterable[Rule], *, guards: bool = False, limits: Limits | None = None):
        """``guards``: count too how often bodies match without each of their guards. ``limits``: on the matches in one
        model; where they are hit, :class:`RuleError` is raised."""
        self._base, self._limits = base, limits
        self._guards: dict[str, tuple[Rule, Expr]] = {}
        self._with_guards = guards
        self.unguarded: Counter[tuple[str, Expr]] = Counter()
        self._matched: set[str] = set()
        self._engine = Engine(base.commands)
        self.watched: list[Watched] = []
        self.refused: list[tuple[Rule, str]] = []
        self._engine.command("(ruleset fuzz-refs) (ruleset fuzz-load) (ruleset fuzz-derive) (ruleset fuzz-match)")
        self._loaders()
        for rule in rules:
            self._watch(rule)
        for rule in base.rules:
            if self._only_derives(rule):
                self._engine.command(_with_ruleset(rule, "fuzz-derive"))
                self._matched.update(heads(rule))

    def _only_derives(self, rule: Rule) -> bool:
        heads = [str(action[0]) for action in rule.actions if isinstance(action, tuple)]
        return bool(heads) and all(h in self._base.relations and not self._has_rows(h) for h in heads)

    def _has_rows(self, relation: str) -> bool:
        """Whether models have rows of it by themselves: not of what a user declares, with a meaning or without."""
        meaning = self._base.meanings.get(relation)
        return meaning is not None and Path(meaning.file).parent == rules_dir()

    def _watch(self, rule: Rule) -> None:
        try:
            sorts = self._base.variables(rule)
        except RuleError as error:
            self.refused.append((rule, str(error)))
            return
        strange = sorted({sort for sort in sorts.values() if sort not in SORTS})
        if strange:
            self.refused.append((rule, f"there are no random instances of sort {strange[0]!r}"))
            return
        name = f"fuzz-match-{len(self.watched)}"
        written, rule = rule, replace(rule, body=tuple(fact for fact in rule.body if not _tells_apart(fact, sorts)))
        body = _shown((*rule.body, *_thinning(rule, sorts)))
        columns = " ".join(sorts.values()) or "i64"
        row = _shown(sorts) or "0"
        matching = f'(rule ({body}) (({name} {row})) :ruleset fuzz-match :name "{name}")'
        try:
            for text in (f"(relation {name} ({columns}))", matching):
                self._engine.declare(replace(rule.command, text=text))
        except RuleError as error:
            self.refused.append((rule, f"egglog does not take its body: {error}"))
            return
        self.watched.append(Watched(written, name, tuple(sorts.items())))
        self._matched.update(heads(rule))
        for number, guard in enumerate(guards_of(rule, self._base) if self._with_guards else ()):
            rest = tuple(fact for fact in rule.body if fact is not guard)
            thin = _thinning(replace(rule, body=rest), sorts)
            if thin == _thinning(rule, sorts):
                relation = f"{name}-guard-{number}"
                open_body = _shown((*rest, *thin))
                self._engine.command(f"(relation {relation} ({columns}))")
                self._engine.command(f"(rule ({open_body}) (({relation} {row})) :ruleset fuzz-match)")
                self._guards[relation] = rule, guard

    def _loaders(self) -> None:
        """Rows of numbers become rows of tensors: joins find the tensors, so that no action looks anything up."""
        command = self._engine.command
        for sort, handle in _HANDLES.items():
            command(f"(constructor {handle} (i64) {sort} :unextractable) (relation fuzz-{sort} (i64))")
            command(f"(rule ((fuzz-{sort} fuzz.n)) (({handle} fuzz.n)) :ruleset fuzz-refs)")
            command(f"(relation fuzz-few-{sort} ({sort})) (relation fuzz-few-number-{sort} (i64))")
            few = f"(fuzz-few-number-{sort} fuzz.n) (= fuzz.v ({handle} fuzz.n))"
            command(f"(rule ({few}) ((fuzz-few-{sort} fuzz.v)) :ruleset fuzz-load)")
        tables = {name: (columns, "") for name, columns in self._base.relations.items()}
        tables |= self._base.constructors
        for name, (columns, result) in tables.items():
            sorts = [*columns, *([result] if result else [])]
            if not set(sorts) <= set(SORTS) or not sorts:
                continue
            plain = " ".join("i64" if sort in _HANDLES else sort for sort in sorts)
            raw = [f"fuzz.c{i}" for i in range(len(sorts))]
            cells = [f"fuzz.v{i}" if sort in _HANDLES else raw[i] for i, sort in enumerate(sorts)]
            known = [(cells[i], f"({_HANDLES[sort]} {raw[i]})") for i, sort in enumerate(sorts) if sort in _HANDLES]
            lookups = " ".join(f"(= {cell} {handle})" for cell, handle in known)
            term = f"({name} {' '.join(cells[:-1] if result else cells)})"
            action = f"(union {cells[-1]} {term})" if result else term
            command(
                f"(relation fuzz-row-{name} ({plain}))"
                f" (rule ((fuzz-row-{name} {' '.join(raw)}) {lookups}) ({action}) :ruleset fuzz-load)"
            )

    def matches(self, model: RuleModel) -> dict[Watched, list[Row]]:
        """All matches in a model."""
        with self._filled(model, self._matched) as lists:
            rows, counts = self._within_limits(self._match, lambda: self._read(lists))
        for (rule, guard), count in zip(self._guards.values(), counts, strict=True):
            self.unguarded[rule.key, guard] += count
        return dict(zip(self.watched, rows, strict=True))

    def together(self, model: RuleModel) -> tuple[int, list[str]]:
        """Runs all rules of the base on a model; how many e-classes were compared, and the false merges and rows."""
        with self._filled(model) as lists:
            return self._within_limits(
                self._run_all, lambda: MergedClasses(model, self._base, self._engine.tables(), lists).check()
            )

    def _match(self) -> None:
        for _ in range(DERIVING_ROUNDS):
            self._engine.step("fuzz-derive")
        self._engine.step("fuzz-match")

    def _run_all(self) -> None:
        rulesets = dict.fromkeys(r.ruleset for r in self._base.rules if r.ruleset not in ("handles", "load"))
        most = GROWTH * self._engine.size()
        for ruleset in [*rulesets] * TOGETHER_ROUNDS:
            self._engine.step(ruleset) if ruleset else self._engine.command("(run 1)")
            if self._engine.size() > most:
                break

    def _within_limits(self, action: Callable[[], None], outcome: Callable[[], _T]) -> _T:
        """What the outcome is after the action, in a copy of this process: nothing stops egglog in a step's middle."""
        if self._limits:
            hit, found = rehearsed(action, outcome, Budget(self._limits, 0, is_guarded=True))
            if hit:
                rule = max((watched.rule for watched in self.watched), key=lambda rule: len(rule.body))
                raise RuleError(f"{rule.file}:{rule.line}: {rule.name!r} matches too often in a small model: {hit}")
            if found is not None:
                return found  # type: ignore[no-any-return]
        action()
        return outcome()

    @contextmanager
    def _filled(self, model: RuleModel, relations: Container[str] | None = None) -> Iterator[list[tuple[int, ...]]]:
        """The e-graph with a model in it, which is taken out again afterwards; gives the operand lists by number.

        ``relations``: those whose rows are needed, if not all are.
        """
        self._engine.command("(push)")
        try:
            lists = self._load(model, relations)
            self._engine.step("fuzz-refs")
            self._engine.step("fuzz-load")
            yield lists
        finally:
            self._engine.command("(pop)")

    def _load(self, model: RuleModel, relations: Container[str] | None) -> list[tuple[int, ...]]:
        values = model.values
        terms = [*(a for _, a in model.ops), *(a for _, _, a in model.makes)]
        lists = dict.fromkeys(a[i:] for a in terms for i in range(len(a) + 1))
        for relation, facts in model.facts.items():
            for column, sort in enumerate(self._base.relations.get(relation, ())):
                if sort == "Args":
                    lists.update(dict.fromkeys(row[column] for row in facts))
        lists.update({a[i:]: None for a in list(lists) for i in range(len(a) + 1)})
        number = {a: n for n, a in enumerate(lists)}
        rows: dict[str, list[Row]] = {
            "fuzz-Tensor": [(i,) for i in range(len(values.tensors))],
            "fuzz-Args": [(n,) for n in number.values()],
            "fuzz-few-number-Tensor": [(i,) for i in _few_tensors(model)],
            "fuzz-few-number-Args": [(n,) for n in _few(model, len(number))],
            "fuzz-row-Ref": list(enumerate(values.refs)),
            "fuzz-row-ARef": [(n, number[a]) for n, a in enumerate(values.lists)],
            "fuzz-row-Op": [(k, number[a], y) for (k, a), y in model.ops.items()],
            "fuzz-row-Make": [(k, s, number[a], y) for (k, s, a), y in model.makes.items()],
            "fuzz-row-Get": [(i, y, z) for (i, y), z in model.gets.items()],
            "fuzz-row-Const": [(name, y) for name, y in values.constants.items()],
            "fuzz-row-Param": [(name, y) for name, y in values.params.items()],
            "fuzz-row-Arg": [(a[0], number[a[1:]], n) for a, n in number.items() if a],
            "fuzz-row-End": [(n,) for a, n in number.items() if not a],
        }
        for relation, facts in model.facts.items():
            columns = self._base.relations.get(relation)
            if columns is None or (relations is not None and relation not in relations):
                continue
            at = [i for i, sort in enumerate(columns) if sort == "Args"]
            rows[f"fuzz-row-{relation}"] = (
                [tuple(number[cell] if i in at else cell for i, cell in enumerate(row)) for row in facts]
                if at
                else list(facts)
            )
        self._engine.load(rows)
        return list(number)

    def _read(self, lists: Sequence[tuple[int, ...]]) -> tuple[list[list[Row]], list[int]]:
        """The matches of each rule, and how many there are without each guard."""
        tables = self._engine.tables()
        tensor = {handle: i for i, handle in tables.rows("FuzzTensor")}
        operands = {handle: lists[n] for n, handle in tables.rows("FuzzArgs")}
        known: dict[str, Any] = {"Tensor": tensor, "Args": operands}
        found = []
        for watched in self.watched:
            columns = [known.get(sort) for _, sort in watched.variables]
            rows = []
            for row in tables.rows(watched.relation):
                cells = [cell if table is None else table.get(cell) for cell, table in zip(row, columns, strict=False)]
                if None not in cells:
                    rows.append(tuple(cells))
            found.append(rows)
        return found, [len(tables.rows(relation)) for relation in self._guards]


def _tells_apart(fact: Expr, sorts: Mapping[str, str]) -> bool:
    """Whether it says that two terms differ, of which egglog only knows that they were not found equal yet."""
    return isinstance(fact, tuple) and fact[0] == "!=" and any(sorts.get(str(part)) in _HANDLES for part in fact[1:])


def _few_tensors(model: RuleModel) -> list[int]:
    """Some of all, and some that were put together for one body."""
    bodies = model.rng.sample(model.bodies, min(FEW, len(model.bodies)))
    return sorted({*_few(model, len(model.values.tensors)), *(number for body in bodies for number in body)})


def _few(model: RuleModel, count: int) -> list[int]:
    return sorted(model.rng.sample(range(count), min(FEW, count)))


def _thinning(rule: Rule, sorts: Mapping[str, str]) -> list[Expr]:
    """Facts that leave few matches of a body whose facts have nothing to do with each other: products explode."""
    parts: list[set[str]] = []
    for fact in rule.body:
        mine = set(variables(fact))
        joined = [part for part in parts if part & mine]
        parts = [part for part in parts if not part & mine] + [mine.union(*joined)]
    few: list[Expr] = []
    for part in parts if len(parts) > 1 else []:
        name = next((n for n in sorts if n in part and sorts[n] in _HANDLES), None)
        few += [] if name is None else [(f"fuzz-few-{sorts[name]}", name)]
    return few


def _with_ruleset(rule: Rule, ruleset: str) -> str:
    body, actions = _shown(rule.body), _shown(rule.actions)
    return f'(rule ({body}) ({actions}) :ruleset {ruleset} :name "{ruleset}/{rule.name}/{rule.line}")'


def _shown(forms: Iterable[Expr]) -> str:
    """The forms as text, with names for variables that no file has for a relation: egglog would not take them."""
    known = tuple(forms)
    names = {name: f"fuzz.{name}" for form in known for name in variables(form)}
    return " ".join(show(substituted(form, dict(names))) for form in known)
