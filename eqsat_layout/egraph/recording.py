"""Rules that write down what they do.

In: the commands of rule files. Out: commands that do the same and more: every firing is a term ``(fired/N values...)``
and ``(why/TABLE row...)`` is the first firing that made a row or term; and :class:`RecordedRule`, to read them with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat_layout.egraph.expressions import Expr, is_variable, parse, quoted, show
from eqsat_layout.egraph.rule_forms import Rule, rules_of
from eqsat_layout.egraph.rules import Command

FIRED, WHY = "fired/", "why/"
_SORT, _FIRING = "Firing__", "firing__"


@dataclass(frozen=True)
class Table:
    """A relation, constructor or function. ``result`` is the sort of its value; None for a relation."""

    columns: tuple[str, ...]
    result: str | None
    is_constructor: bool = False


@dataclass(frozen=True)
class Atom:
    """A row that a body looks for, of variables and literals; ``result`` stands for the value of its table there."""

    table: str
    columns: tuple[Expr, ...]
    result: Expr | None = None


Column = tuple[int, int]
"""An atom of a body by its number, and a column of it; the one behind the last is the value of its table."""


@dataclass(frozen=True)
class Conclusion:
    """A row that a rule makes, or a term that it builds, by the expressions in its columns."""

    table: str
    columns: tuple[Expr, ...]
    value: Expr | None = None


@dataclass(frozen=True)
class RecordedRule:
    """``variables``: the columns of its firings, by their sorts. ``places``: where each stands in the body, first as a
    term. ``unions``: what it makes equal. ``lets``: what names in actions stand for."""

    rule: Rule
    fired: str
    variables: Mapping[str, str]
    atoms: tuple[Atom, ...]
    places: Mapping[str, tuple[Column, ...]]
    conclusions: tuple[Conclusion, ...]
    unions: tuple[tuple[Expr, Expr], ...]
    lets: Mapping[str, Expr]


@dataclass(frozen=True)
class Recording:
    """``commands`` to load, and how to read what they write down."""

    commands: tuple[Command, ...]
    rules: tuple[RecordedRule, ...]
    tables: Mapping[str, Table]


def recorded(commands: Sequence[Command]) -> Recording:
    """The same rules, which write down what they do."""
    first = commands[0]
    made = [replace(first, text=f"(sort {_SORT})")]
    tables: dict[str, Table] = {}
    rules: list[RecordedRule] = []
    for command in commands:
        own = rules_of(command)
        is_rule = bool(own)
        own = own or _top_level(command)
        for rule in own:
            reader = _RuleReader(rule, f"{FIRED}{len(rules)}", tables)
            rules.append(reader.read())
            made += [replace(command, text=text) for text in reader.texts(is_rule=is_rule)]
        if not own:
            made.append(command)
        for name, table in _declared(command):
            tables[name] = table
            why = f"(function {WHY}{name} ({' '.join(table.columns)}) {_SORT} :merge old)"
            made.append(replace(command, text=why))
    return Recording(tuple(made), tuple(rules), tables)


def _top_level(command: Command) -> list[Rule]:
    """A ``union`` or ``set`` of the file itself, as a rule that asks for nothing."""
    form = parse(command.text)[0]
    if isinstance(form, str) or form[0] not in ("union", "set"):
        return []
    name = f"line {command.line}"
    return [Rule(name, name, command, (), (form,), is_named=False)]


def _declared(command: Command) -> Iterator[tuple[str, Table]]:
    form = parse(command.text)[0]
    assert not isinstance(form, str), "commands are forms in parentheses"
    head, name, *parts = (*form, "", "")
    if head == "relation":
        yield str(name), Table(_names(parts[0]), None)
    elif head in ("constructor", "function"):
        yield str(name), Table(_names(parts[0]), str(parts[1]), is_constructor=head == "constructor")
    elif head == "datatype":
        yield from _variants(form[1:])
    elif head == "datatype*":
        for own in form[1:]:
            if own[0] != "sort":
                yield from _variants(own)


def _variants(form: Expr) -> Iterator[tuple[str, Table]]:
    """The variants of ``(Sort (Variant columns... :option value)...)``."""
    for variant in form[1:]:
        if not isinstance(variant, str):
            names = _names(variant[1:])
            end = next((i for i, name in enumerate(names) if name[:1] == ":"), len(names))
            yield str(variant[0]), Table(names[:end], str(form[0]), is_constructor=True)


def _names(parts: Expr) -> tuple[str, ...]:
    return tuple(map(str, parts))


class _RuleReader:
    """One rule: its body taken apart into rows, so that a firing says all of them."""

    def __init__(self, rule: Rule, fired: str, tables: Mapping[str, Table]):
        self._rule, self._fired, self._tables = rule, fired, tables
        self._atoms: list[Atom] = []
        self._facts: list[Expr] = []
        self._conclusions: dict[Conclusion, None] = {}
        self._sorts: dict[str, str] = {}
        self._fresh = 0

    def read(self) -> RecordedRule:
        for fact in self._rule.body:
            self._facts.append(self._fact(fact))
        lets: dict[str, Expr] = {}
        unions: list[tuple[Expr, Expr]] = []
        for action in self._rule.actions:
            if isinstance(action, str) or action[0] in ("delete", "subsume"):
                continue
            head, *parts = action
            if head == "let":
                lets[str(parts[0])] = parts[1]
            elif head == "union":
                unions.append((parts[0], parts[1]))
            if head == "set" and not isinstance(parts[0], str):
                self._conclude(parts[0], parts[1])
            else:
                self._conclude(action)
        made, atoms = tuple(self._conclusions), tuple(self._atoms)
        return RecordedRule(self._rule, self._fired, self._sorts, atoms, self._places(), made, tuple(unions), lets)

    def _conclude(self, expr: Expr, value: Expr | None = None) -> None:
        """Notes the row that an expression of an action makes, after the terms inside it."""
        if isinstance(expr, str):
            return
        for part in (*expr[1:], value or ""):
            self._conclude(part)
        if expr[0] in self._tables:
            self._conclusions[Conclusion(str(expr[0]), expr[1:], value)] = None

    def _places(self) -> dict[str, tuple[Column, ...]]:
        found: dict[str, list[Column]] = {name: [] for name in self._sorts}
        for number, atom in enumerate(self._atoms):
            for column, cell in enumerate(atom.columns):
                if cell in found:
                    found[str(cell)].append((number, column))
            if atom.result in found:
                is_term = self._tables[atom.table].is_constructor
                own = found[str(atom.result)]
                own.insert(0 if is_term else len(own), (number, len(atom.columns)))
        return {name: tuple(places) for name, places in found.items()}

    def texts(self, *, is_rule: bool) -> Iterator[str]:
        """The rule as commands; what stands at the top of a file acts at once and has no name for its firing."""
        yield f"(constructor {self._fired} ({' '.join(self._sorts.values())}) {_SORT})"
        firing: Expr = (self._fired, *self._sorts)
        rule, named = self._rule, _FIRING if is_rule else firing
        why: list[Expr] = [("set", (f"{WHY}{made.table}", *made.columns), named) for made in self._conclusions]
        if not is_rule:
            yield from map(show, (firing, *rule.actions, *why))
            return
        actions = [("let", _FIRING, firing), *rule.actions, *why]
        actions += [] if rule.subsumed is None else [("subsume", rule.subsumed)]
        body, head = (" ".join(map(show, forms)) for forms in (self._facts, actions))
        ruleset = f" :ruleset {rule.ruleset}" if rule.ruleset else ""
        yield f"(rule ({body}) ({head}){ruleset} :name {quoted(rule.key)})"

    def _fact(self, fact: Expr) -> Expr:
        if isinstance(fact, str):
            return fact
        head, *parts = fact
        if head != "=" or len(parts) != 2:
            return self._row(fact, None) if head in self._tables else (head, *map(self._flat, parts))
        left, right = parts
        for one, other in ((left, right), (right, left)):
            if self._is_row(one):
                value = self._flat(other)
                return ("=", value, self._row(one, value))
        return ("=", self._flat(left), self._flat(right))

    def _is_row(self, expr: Expr) -> bool:
        return not isinstance(expr, str) and expr[0] in self._tables

    def _flat(self, expr: Expr) -> Expr:
        """A variable or literal in place of a row or of something computed."""
        if isinstance(expr, str):
            return self._new() if expr == "_" else expr
        name = self._new()
        made = self._row(expr, name) if self._is_row(expr) else (expr[0], *map(self._flat, expr[1:]))
        self._facts.append(("=", name, made))
        return name

    def _row(self, expr: Expr, result: Expr | None) -> Expr:
        assert not isinstance(expr, str)
        table = self._tables[str(expr[0])]
        columns = tuple(map(self._flat, expr[1:]))
        for cell, sort in zip((*columns, result), (*table.columns, table.result), strict=False):
            if cell is not None and sort is not None and is_variable(cell) and not str(cell).startswith("$"):
                self._sorts.setdefault(str(cell), sort)
        self._atoms.append(Atom(str(expr[0]), columns, result))
        return (expr[0], *columns)

    def _new(self) -> str:
        self._fresh += 1
        return f"part{self._fresh}__"
