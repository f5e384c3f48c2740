"""Rules as data: bodies, actions and names.

In: commands of rule files. Out: :class:`Rule`, also for a rewrite, which is a rule with a variable for what it
rewrites; and the name that egglog knows each by: one that has none is given one when it is loaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eqsat_layout.egraph.expressions import Expr, parse, quoted, show, unquoted
from eqsat_layout.egraph.rules import Command, is_own

REWRITTEN = "rewritten__"
"""The variable of a rewrite: the class of what it rewrites."""

_REWRITES = ("rewrite", "birewrite")
_RULES = ("rule", *_REWRITES)
_OPENINGS = tuple(f"({head}" for head in _RULES)
_BOTH_WAYS = ("=>", "<=")
"""What egglog puts behind the name of a ``birewrite`` for its two rules."""


@dataclass(frozen=True)
class Rule:
    """``body`` implies ``actions``. ``key``: the name that egglog knows it by; ``name``: the same for a person.

    ``subsumed``: what no other rule sees once a rewrite has rewritten it. Without ``is_named`` the file gives no name.
    """

    name: str
    key: str
    command: Command
    body: tuple[Expr, ...]
    actions: tuple[Expr, ...]
    ruleset: str = ""
    subsumed: Expr | None = None
    is_named: bool = True

    def __str__(self) -> str:
        return f"{self.place} {self.name}"

    @property
    def file(self) -> str:
        """The file that it stands in."""
        return self.command.file

    @property
    def line(self) -> int:
        """Its first line there, from 1."""
        return self.command.line

    @property
    def place(self) -> str:
        """``file:line`` without folders."""
        return f"{Path(self.file).name}:{self.line}"

    @property
    def label(self) -> str:
        """The name of a rule of the package; of a user's rule also where it stands."""
        if is_own(self.command):
            return self.name
        return f"{self.name} ({self.place})" if self.is_named else self.place

    @property
    def text(self) -> str:
        """As it stands in a rule file."""
        body, actions = (" ".join(map(show, forms)) for forms in (self.body, self.actions))
        return f"(rule ({body}) ({actions}))"


def rules_of(command: Command) -> list[Rule]:
    """The rules that a command declares: none, one, or two for a ``birewrite``."""
    head, *parts = _form(command)
    if head not in _RULES:
        return []
    options = _options(parts[2:])
    given = options.get(":name")
    key = _key(command) if given is None else unquoted(str(given))
    name = f"line {command.line}" if given is None else key
    ruleset, is_named = str(options.get(":ruleset", "")), given is not None
    if head == "rule":
        return [Rule(name, key, command, _forms(parts[0]), _forms(parts[1]), ruleset, is_named=is_named)]
    when = _forms(options.get(":when", ()))
    ways = [(parts[0], parts[1], "")]
    if head == "birewrite":
        ways = [(parts[0], parts[1], _BOTH_WAYS[0]), (parts[1], parts[0], _BOTH_WAYS[1])]
    found = []
    for before, after, way in ways:
        body, action = (("=", REWRITTEN, before), *when), ("union", REWRITTEN, after)
        subsumed = before if ":subsume" in parts else None
        found.append(Rule(name + way, key + way, command, body, (action,), ruleset, subsumed, is_named))
    return found


def text_with_name(command: Command) -> str:
    """The text of a command, a rule with a name of its own; rewrites, which have none in egglog, as rules."""
    if not command.text.startswith(_OPENINGS):
        return command.text
    head, *parts = _form(command)
    if head in _REWRITES:
        return " ".join(map(_written_out, rules_of(command)))
    if head not in _RULES or ":name" in _options(parts[2:]):
        return command.text
    return f"{command.text[:-1]} :name {quoted(_key(command))})"


def _written_out(rule: Rule) -> str:
    actions = rule.actions if rule.subsumed is None else (*rule.actions, ("subsume", rule.subsumed))
    body, then = (" ".join(map(show, forms)) for forms in (rule.body, actions))
    ruleset = f" :ruleset {rule.ruleset}" if rule.ruleset else ""
    return f"(rule ({body}) ({then}){ruleset} :name {quoted(rule.key)})"


def _key(command: Command) -> str:
    return f"{command.file}:{command.line}:{command.column}"


def _form(command: Command) -> tuple[Expr, ...]:
    form = parse(command.text)[0]
    assert not isinstance(form, str), "commands are forms in parentheses"
    return form or ("",)


def _forms(expr: Expr) -> tuple[Expr, ...]:
    return (expr,) if isinstance(expr, str) else expr


def _options(parts: Sequence[Expr]) -> dict[str, Expr]:
    return {key: value for key, value in itertools.pairwise(parts) if isinstance(key, str) and key[:1] == ":"}
