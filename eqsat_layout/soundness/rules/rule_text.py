"""Rules as data: what a rule file declares, what its rules say, and what its relations mean.

In: commands of rule files and the ``;=`` lines between them. Out: :class:`RuleBase`. A ``;=`` line gives the meaning of
a relation: ``;= (alias y k x) := (= y (at k x))``; rules/README.md tells the language. What is not a rule that can be
read so is kept as :class:`Unread`, with the reason.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eqsat_layout.egraph.rules import Command, read_commands
from eqsat_layout.errors import RuleError

Expr = str | tuple["Expr", ...]
"""A symbol, number or (with its quotes) string; or a form."""

_TOKEN = re.compile(r'\s+|;[^\n]*|([()]|"(?:\\.|[^"\\])*"|[^\s()";]+)')
_MEANING = re.compile(r"^;= (.*)$", re.MULTILINE)
COMPUTED = frozenset(("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "!=", "min", "max", "and", "or", "not"))
"""egglog's functions of numbers and strings that rules may use."""


@dataclass(frozen=True)
class Rule:
    """``body`` implies ``actions``. A rewrite is one too, with a variable for what it rewrites."""

    name: str
    file: str
    line: int
    body: tuple[Expr, ...]
    actions: tuple[Expr, ...]
    ruleset: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.name}"

    @property
    def text(self) -> str:
        """As it stands in a rule file."""
        body, actions = (" ".join(map(show, forms)) for forms in (self.body, self.actions))
        return f"(rule ({body}) ({actions}))"


@dataclass(frozen=True)
class Meaning:
    """``formula`` says what a row of the relation says of ``columns``; its other variables stand for everything."""

    columns: tuple[str, ...]
    formula: Expr
    file: str
    line: int


@dataclass(frozen=True)
class Unread:
    """A command that may act and that the fuzzer can't read."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: {self.why}"


@dataclass
class RuleBase:
    """Everything that some rule files say, in order."""

    relations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    constructors: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    meanings: dict[str, Meaning] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def variables(self, rule: Rule) -> dict[str, str]:
        """The variables of the body with their sorts, in order; :class:`RuleError` where one has none."""
        sorts: dict[str, str] = {}
        for _ in range(len(rule.body) + 1):  # (= x y) passes sorts on
            for fact in rule.body:
                self._collect(fact, sorts)
        for name in variables(rule.body):
            if name not in sorts:
                raise RuleError(f"{rule.file}:{rule.line}: can't tell the sort of {name!r}")
        return {name: sorts[name] for name in variables(rule.body)}

    def _collect(self, expr: Expr, sorts: dict[str, str]) -> str | None:
        """Notes the sorts of variables in ``expr`` and returns its own, if it is known."""
        if isinstance(expr, str):
            return literal_sort(expr) or sorts.get(expr)
        head, *parts = expr
        assert isinstance(head, str)
        if head in self.relations or head in self.constructors:
            columns, result = self.constructors.get(head) or (self.relations[head], None)
            for part, sort in zip(parts, columns, strict=False):
                self._collect(part, sorts)
                if is_variable(part):
                    sorts.setdefault(str(part), sort)
            return result
        found = [self._collect(part, sorts) for part in parts]
        known = next((sort for sort in found if sort), None)
        for part in parts:
            if is_variable(part) and known:
                sorts.setdefault(str(part), known)
        return known if head in COMPUTED else None


def read_rule_base(paths: Iterable[Path]) -> RuleBase:
    """Reads rule files; :class:`RuleError` for what egglog would not take either, and for a wrong meaning."""
    base = RuleBase()
    for path in paths:
        commands = read_commands(path)
        base.commands += commands
        for command in commands:
            _read(command, base)
        for meaning in _meanings(path.read_text(encoding="utf-8"), str(path)):
            _add_meaning(base, *meaning)
    return base


def parse(text: str) -> list[Expr]:
    """The forms in ``text``, whose parentheses are known to match."""
    stack: list[list[Expr]] = [[]]
    for match in _TOKEN.finditer(text):
        token = match[1]
        if token == "(":
            stack.append([])
        elif token == ")":
            form = tuple(stack.pop())
            stack[-1].append(form)
        elif token is not None:
            stack[-1].append(token)
    return stack[0]


def show(expr: Expr) -> str:
    """The text of an expression."""
    return expr if isinstance(expr, str) else f"({' '.join(map(show, expr))})"


def is_variable(expr: Expr) -> bool:
    """A name that stands for something, neither a number nor a string."""
    return isinstance(expr, str) and literal_sort(expr) is None


def literal_sort(token: str) -> str | None:
    """The sort of a number or string."""
    if token.startswith('"'):
        return "String"
    return "i64" if re.fullmatch(r"-?\d+", token) else None


def variables(expr: Expr) -> dict[str, None]:
    """The variables of an expression or of several, each once, in order. A form's head is none."""
    if isinstance(expr, str):
        return {expr: None} if is_variable(expr) else {}
    parts = expr[1:] if expr and isinstance(expr[0], str) else expr
    return {name: None for part in parts for name in variables(part)}


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with its variables replaced."""
    if isinstance(expr, str):
        return values.get(expr, expr)
    return tuple(part if i == 0 and isinstance(part, str) else substitute(part, values) for i, part in enumerate(expr))


def _read(command: Command, base: RuleBase) -> None:
    form = parse(command.text)[0]
    assert not isinstance(form, str)
    head, *parts = form
    reader = _READERS.get(str(head))
    if reader is not None:
        reader(command, parts, base)
    elif head not in ("ruleset", "sort", "check", "fail"):
        base.unread.append(Unread(command.file, command.line, f"'{head}' is not a rule that can be fuzzed"))


def _relation(_command: Command, parts: Sequence[Expr], base: RuleBase) -> None:
    base.relations[str(parts[0])] = tuple(map(str, parts[1]))


def _constructor(_command: Command, parts: Sequence[Expr], base: RuleBase) -> None:
    base.constructors[str(parts[0])] = (tuple(map(str, parts[1])), str(parts[2]))


def _rule(command: Command, parts: Sequence[Expr], base: RuleBase) -> None:
    options = _options(parts[2:])
    name = options.get(":name", f'"{command.line}"').strip('"')
    body, actions = (tuple(part) for part in parts[:2])
    base.rules.append(Rule(name, command.file, command.line, body, actions, options.get(":ruleset", "")))


def _rewrite(command: Command, parts: Sequence[Expr], base: RuleBase) -> None:
    both = command.text.lstrip("( ").startswith("bi")
    options = _options(parts[2:])
    when: tuple[Expr, ...] = ()
    for key, value in itertools.pairwise(parts[2:]):
        if key == ":when":
            when = tuple(value)
    name = options.get(":name", f'"{command.line}"').strip('"')
    sides = [(parts[0], parts[1]), (parts[1], parts[0])] if both else [(parts[0], parts[1])]
    for number, (before, after) in enumerate(sides):
        body = (("=", "rewritten__", before), *when)
        suffix = "/back" if number else ""
        ruleset = options.get(":ruleset", "")
        action = ("union", "rewritten__", after)
        base.rules.append(Rule(name + suffix, command.file, command.line, body, (action,), ruleset))


_READERS = {
    "relation": _relation,
    "constructor": _constructor,
    "rule": _rule,
    "rewrite": _rewrite,
    "birewrite": _rewrite,
}


def _options(parts: Sequence[Expr]) -> dict[str, str]:
    pairs = itertools.pairwise(parts)
    return {key: value for key, value in pairs if isinstance(key, str) and key[:1] == ":" and isinstance(value, str)}


def _meanings(text: str, file: str) -> Iterator[tuple[str, str, int]]:
    for match in _MEANING.finditer(text):
        yield match[1], file, text.count("\n", 0, match.start()) + 1


def _add_meaning(base: RuleBase, text: str, file: str, line: int) -> None:
    def wrong(why: str) -> RuleError:
        return RuleError(f"{file}:{line}: {why}; a meaning is written ';= (relation columns...) := formula'")

    if text.count("(") != text.count(")"):
        raise wrong("parentheses don't match")
    forms = parse(text)
    if len(forms) != 3 or forms[1] != ":=" or isinstance(forms[0], str):
        raise wrong("can't read this")
    name, *columns = map(str, forms[0])
    if name not in base.relations:
        raise wrong(f"there is no relation {name!r}")
    if len(columns) != len(base.relations[name]) or len(set(columns)) != len(columns):
        raise wrong(f"{name!r} has {len(base.relations[name])} columns")
    base.meanings[name] = Meaning(tuple(columns), forms[2], file, line)


__all__ = ["Expr", "Meaning", "Rule", "RuleBase", "Unread", "parse", "read_rule_base", "show", "substitute"]
