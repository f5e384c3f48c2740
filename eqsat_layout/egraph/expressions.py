"""Rule text as nested tuples: what rules are read, recorded, fuzzed and proved as.

In: text whose parentheses match. Out: expressions, which can be searched, substituted in and shown as text again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

Expr = str | tuple["Expr", ...]
"""A symbol, number or (with its quotes) string; or a form."""

_TOKEN = re.compile(r'\s+|;[^\n]*|([()]|"(?:\\.|[^"\\])*"|[^\s()";]+)')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t"}


@lru_cache(2048)
def parse(text: str) -> tuple[Expr, ...]:
    """The forms in ``text``, whose parentheses are known to match. Those of the package are read again and again."""
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
    return tuple(stack[0])


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


def quoted(text: str) -> str:
    """A string as rule text has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquoted(literal: str) -> str:
    """The string that a literal is."""
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), literal[1:-1])


def arguments_of(operands: Expr) -> tuple[list[Expr], Expr]:
    """Those of ``(Arg a (Arg b rest))``, and the rest: ``(End)``, or a variable."""
    found: list[Expr] = []
    while isinstance(operands, tuple) and len(operands) == 3 and operands[0] == "Arg":
        found.append(operands[1])
        operands = operands[2]
    return found, operands


def forms_of(expr: Expr) -> Iterator[tuple[Expr, ...]]:
    """What stands in parentheses in an expression, at any depth, the outer ones first."""
    if not isinstance(expr, str):
        if expr and isinstance(expr[0], str):
            yield expr
        for part in expr:
            yield from forms_of(part)


def variables(expr: Expr) -> dict[str, None]:
    """The variables of an expression or of several, each once, in order. A form's head is none."""
    if isinstance(expr, str):
        return {expr: None} if is_variable(expr) else {}
    parts = expr[1:] if expr and isinstance(expr[0], str) else expr
    return {name: None for part in parts for name in variables(part)}


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with its variables replaced."""
    if isinstance(expr, str):
        return values.get(expr, expr)
    return tuple(part if i == 0 and isinstance(part, str) else substituted(part, values) for i, part in enumerate(expr))
