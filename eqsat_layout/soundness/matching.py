"""Instances of rules (soundness room): egglog itself says where in a model the bodies of rules match.

In: rules and models. Out: per rule, the rows of its variables for every match, as numbers of the model. Relations that
have no meaning are first filled by the rules that conclude nothing else, so that rules that build on them find rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.egraph.database import Database
from eqsat_layout.egraph.rules import Command
from eqsat_layout.errors import RuleError
from eqsat_layout.soundness.model import Model, Row
from eqsat_layout.soundness.rule_text import Rule, RuleBase, show

SORTS = ("Tensor", "Args", "String", "i64")
DERIVING_ROUNDS = 4
_HANDLES = {"Tensor": "Ref", "Args": "ARef"}


@dataclass(frozen=True)
class Watched:
    """A rule whose matches are looked for; ``variables`` are those of its body with their sorts."""

    rule: Rule
    relation: str
    variables: tuple[tuple[str, str], ...]


class Matcher:
    """An e-graph with the declarations of a rule base, ready to be filled with one model after the other."""

    def __init__(self, base: RuleBase, commands: Sequence[Command], rules: Iterable[Rule]):
        self._base = base
        self._database = Database(commands)
        self.watched: list[Watched] = []
        self.refused: list[tuple[Rule, str]] = []
        self._database.command("(ruleset fuzz-refs) (ruleset fuzz-load) (ruleset fuzz-derive) (ruleset fuzz-match)")
        self._loaders()
        for rule in rules:
            self._watch(rule)
        for rule in base.rules:
            if self._only_derives(rule):
                self._database.command(_with_ruleset(rule, "fuzz-derive"))

    def close(self) -> None:
        """Frees the scratch files."""
        self._database.close()

    def _only_derives(self, rule: Rule) -> bool:
        heads = [str(action[0]) for action in rule.actions if isinstance(action, tuple)]
        return bool(heads) and all(h in self._base.relations and h not in self._base.meanings for h in heads)

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
        body = " ".join(map(show, rule.body))
        columns = " ".join(sorts.values()) or "i64"
        row = " ".join(sorts) or "0"
        try:
            self._database.command(
                f"(relation {name} ({columns})) (rule ({body}) (({name} {row})) :ruleset fuzz-match :name \"{name}\")"
            )
        except BaseException as error:  # egglog panics with a BaseException for some mistakes
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.refused.append((rule, "egglog does not take its body"))
            return
        self.watched.append(Watched(rule, name, tuple(sorts.items())))

    def _loaders(self) -> None:
        """Rows of numbers become rows of tensors: joins find the tensors, so that no action looks anything up."""
        command = self._database.command
        command("(relation fuzz-ref (i64)) (relation fuzz-list (i64))")
        command("(rule ((fuzz-ref r)) ((Ref r)) :ruleset fuzz-refs) (rule ((fuzz-list a)) ((ARef a)) :ruleset fuzz-refs)")
        tables = {name: (columns, "") for name, columns in self._base.relations.items()}
        tables |= {name: term for name, term in self._base.constructors.items() if name not in _HANDLES.values()}
        for name, (columns, result) in tables.items():
            sorts = [*columns, *([result] if result else [])]
            if not set(sorts) <= set(SORTS) or not sorts:
                continue
            plain = " ".join("i64" if sort in _HANDLES else sort for sort in sorts)
            cells = [f"v{i}" if sort in _HANDLES else f"c{i}" for i, sort in enumerate(sorts)]
            lookups = " ".join(f"(= v{i} ({_HANDLES[sort]} c{i}))" for i, sort in enumerate(sorts) if sort in _HANDLES)
            raw = " ".join(f"c{i}" for i in range(len(sorts)))
            if result:
                action = f"(union {cells[-1]} ({name} {' '.join(cells[:-1])}))"
            else:
                action = f"({name} {' '.join(cells)})"
            command(
                f"(relation fuzz-row-{name} ({plain}))"
                f" (rule ((fuzz-row-{name} {raw}) {lookups}) ({action}) :ruleset fuzz-load)"
            )

    def matches(self, model: Model) -> dict[Watched, list[Row]]:
        """All matches in a model."""
        database = self._database
        database.command("(push)")
        try:
            numbers = self._load(model)
            database.step("fuzz-refs")
            database.step("fuzz-load")
            for _ in range(DERIVING_ROUNDS):
                database.step("fuzz-derive")
            database.step("fuzz-match")
            return self._read(numbers)
        finally:
            database.command("(pop)")

    def _load(self, model: Model) -> list[tuple[int, ...]]:
        values = model.values
        lists = dict.fromkeys(a[i:] for _, a in model.ops for i in range(len(a) + 1))
        for relation, rows in model.facts.items():
            for at, sort in enumerate(self._base.relations.get(relation, ())):
                if sort == "Args":
                    lists.update(dict.fromkeys(row[at] for row in rows))
        lists.update({a[i:]: None for a in list(lists) for i in range(len(a) + 1)})
        number = {a: n for n, a in enumerate(lists)}
        rows: dict[str, list[Row]] = {
            "fuzz-ref": [(i,) for i in range(len(values.tensors))],
            "fuzz-list": [(n,) for n in number.values()],
            "fuzz-row-Op": [(k, number[a], y) for (k, a), y in model.ops.items()],
            "fuzz-row-Get": [(i, y, z) for (i, y), z in model.gets.items()],
            "fuzz-row-Const": [(name, y) for name, y in values.constants.items()],
            "fuzz-row-Param": [(name, y) for name, y in values.params.items()],
            "fuzz-row-Arg": [(a[0], number[a[1:]], n) for a, n in number.items() if a],
            "fuzz-row-End": [(n,) for a, n in number.items() if not a],
        }
        for relation, facts in model.facts.items():
            columns = self._base.relations.get(relation)
            if columns is None:
                continue
            at = [i for i, sort in enumerate(columns) if sort == "Args"]
            rows[f"fuzz-row-{relation}"] = [
                tuple(number[cell] if i in at else cell for i, cell in enumerate(row)) for row in facts
            ] if at else list(facts)
        self._database.load(rows)
        return list(number)

    def _read(self, lists: Sequence[tuple[int, ...]]) -> dict[Watched, list[Row]]:
        tables = self._database.tables()
        tensor = {handle: i for i, handle in tables.rows("Ref")}
        operands = {handle: lists[n] for n, handle in tables.rows("ARef")}
        known: dict[str, Any] = {"Tensor": tensor, "Args": operands}
        found: dict[Watched, list[Row]] = {}
        for watched in self.watched:
            columns = [known.get(sort) for _, sort in watched.variables]
            rows = []
            for row in tables.rows(watched.relation):
                cells = [cell if table is None else table.get(cell) for cell, table in zip(row, columns, strict=False)]
                if None not in cells:
                    rows.append(tuple(cells))
            found[watched] = rows
        return found


def _with_ruleset(rule: Rule, ruleset: str) -> str:
    body, actions = (" ".join(map(show, forms)) for forms in (rule.body, rule.actions))
    return f'(rule ({body}) ({actions}) :ruleset {ruleset} :name "{ruleset}/{rule.name}/{rule.line}")'
