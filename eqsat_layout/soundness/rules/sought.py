"""What the bodies of rules look for.

In: a body. Out: :class:`Sought`: the terms that it is made of and the ops that it names, by the meanings of its
relations, so that models can be made in which it matches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat_layout.egraph.expressions import Expr, is_variable, substitute, variables
from eqsat_layout.soundness.rules.rule_base import RuleBase

_BUILT = ("Op", "at", "Get", "Const", "window")
"""Terms that are built; the others are of programs, which are numbered afterwards."""


@dataclass(frozen=True)
class Sought:
    """What a body looks for: ``named`` ops, ``equations`` of terms, and ``items``: which tensors are in which lists."""

    named: tuple[tuple[str, str], ...]
    equations: tuple[tuple[Expr, Expr], ...]
    items: tuple[tuple[str, Expr, Expr], ...]


def sought_by(base: RuleBase, body: Sequence[Expr]) -> Sought:
    """The terms that a body looks for, by the meanings of its relations, as far as these are conjunctions."""
    said = [formula for fact in body for formula in _said(base, fact, "", itertools.count())]
    named = [
        (str(f[1]), str(f[2])[1:-1]) for f in said if f[0] == "named" and str(f[2])[:1] == '"' and is_variable(f[1])
    ]
    equations = [(a, b) for f in said if f[0] == "=" for a, b in [_variable_first(f)]]
    lists = {str(a): b for a, b in equations if isinstance(b, tuple) and b[0] in ("Arg", "End") and is_variable(a)}
    items = [
        (str(b[1]), b[2], a) for a, b in equations if isinstance(b, tuple) and b[0] == "pick" and is_variable(b[1])
    ]
    whole = [(a, b) for a, b in equations if isinstance(b, tuple) and b[0] in _BUILT]
    for name, cells in lists.items():
        whole = [(a, made) for a, b in whole if isinstance(made := substitute(b, {name: cells}), tuple)]
    return Sought(tuple(named), tuple(whole), tuple(items))


def _said(base: RuleBase, fact: Expr, suffix: str, fresh_numbers: Iterator[int]) -> Iterator[tuple[Expr, ...]]:
    """What a fact says, as far as that is a conjunction of equations and names."""
    if isinstance(fact, str) or not fact:
        return
    head, *columns = fact
    meaning = base.meanings.get(str(head))
    if meaning is not None:
        values = dict(zip(meaning.columns, columns, strict=False))
        yield from _said(base, substitute(meaning.formula, values), suffix + ".", fresh_numbers)
    elif head == "and":
        for n, part in enumerate(columns):
            yield from _said(base, part, suffix + str(n), fresh_numbers)
    elif head == "some":
        fresh = {v: f"{v}{suffix}/{next(fresh_numbers)}" for v in variables(columns[0])}
        yield from _said(base, substitute(columns[1], dict(fresh)), suffix, fresh_numbers)
    elif head in ("=", "named"):
        yield fact


def _variable_first(equation: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    a, b = equation[1], equation[2]
    return (b, a) if isinstance(b, str) and not isinstance(a, str) else (a, b)
