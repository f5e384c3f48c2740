"""What the bodies of rules look for.

In: a body. Out: :class:`BodySearch`: the terms that it is made of and the ops that it names, by the meanings of its
relations, so that models can be made in which it matches. Relations without a meaning hold where a rule concludes them:
its body is looked for in their place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat_layout.egraph.expressions import Expr, is_variable, substituted, variables
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.computed_terms import told_apart
from eqsat_layout.soundness.rules.rule_base import RuleBase, without_meaning

_BUILT = ("Op", "at", "Get", "Const", "window")
"""Terms that are built; the others are of programs, which are numbered afterwards."""

_ATTRIBUTES = ("attribute", "attribute-number", "by-default")

_DEPTH = 3
"""Rules in a chain."""
_BODIES = 6
"""Of one rule, with those of other rules in them."""


@dataclass(frozen=True)
class BodySearch:
    """What a body looks for: ``named`` ops, ``equations`` of terms, and ``items``: which tensors are in which lists.

    ``typed``: terms, or ops whose results, are of a type; ``attributes`` of ops, each by its name, and what it is:
    text, or a variable; None where it is the default. ``alike``: ops of one name, whichever that is.
    ``held``: numbers that tensors hold everywhere.
    """

    named: tuple[tuple[str, str], ...]
    equations: tuple[tuple[Expr, Expr], ...]
    items: tuple[tuple[str, Expr, Expr], ...]
    typed: tuple[tuple[Expr, Expr], ...] = ()
    gives: tuple[tuple[str, Expr], ...] = ()
    attributes: tuple[tuple[str, str, Expr | None], ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    held: tuple[tuple[str, str], ...] = ()


def searches(base: RuleBase, rule: Rule) -> Iterator[tuple[str, BodySearch]]:
    """What a rule looks for, in one way after the other, each with a key of its own."""
    for number, body in enumerate(_unfolded(base, rule.body, _DEPTH)[:_BODIES]):
        yield f"{rule.key}#{number}" if number else rule.key, body_search_of(base, body)


def _unfolded(base: RuleBase, body: tuple[Expr, ...], depth: int) -> list[tuple[Expr, ...]]:
    """The body, and with bodies of rules in the place of facts that have no meaning but what these rules conclude."""
    found = [body]
    for place, fact in enumerate(body if depth else ()):
        if isinstance(fact, str) or not fact or fact[0] in base.meanings or fact[0] not in base.relations:
            continue
        inner = [own for rule in base.rules for own in _bodies_for(base, rule, fact, f"~{depth}")]
        if inner:
            for own in inner:
                found += _unfolded(base, (*body[:place], *own, *body[place + 1 :]), depth - 1)
            break
    return found


def _bodies_for(base: RuleBase, rule: Rule, fact: tuple[Expr, ...], suffix: str) -> Iterator[tuple[Expr, ...]]:
    """The rule's body for each of its actions that concludes the fact, with its own names for other variables. What it
    counts may be what the fact says."""
    for action in rule.actions if fact[0] in without_meaning(rule, base) else ():
        if not isinstance(action, tuple) or action[0] != fact[0]:
            continue
        columns = list(zip(action[1:], fact[1:], strict=True))
        if any(_is_literal(own) and _is_literal(given) and own != given for own, given in columns):
            continue
        names: dict[str, Expr] = {name: f"{name}{suffix}" for name in variables(rule.body)}
        names |= {str(own): given for own, given in columns if is_variable(own)}
        made = [one for one in columns if isinstance(one[0], tuple) and one[0][0] in base.constructors]
        terms = (("=", given, substituted(own, names)) for own, given in made)
        yield (*(substituted(one, names) for one in rule.body), *terms)


def body_search_of(base: RuleBase, body: Sequence[Expr]) -> BodySearch:
    """The terms that a body looks for, by the meanings of its relations, as far as these are conjunctions."""
    body = told_apart(body)
    texts = dict(_texts_in(body))
    said = [formula for fact in body for formula in _said(base, substituted(fact, texts), "", itertools.count())]
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
        whole = [(a, made) for a, b in whole if isinstance(made := substituted(b, {name: cells}), tuple)]
    return BodySearch(
        tuple(named),
        tuple(whole),
        tuple(items),
        typed=tuple((f[1], f[2]) for f in said if f[0] == "of-type"),
        gives=tuple((str(f[1]), f[2]) for f in said if f[0] == "gives"),
        attributes=tuple(_attribute(f) for f in said if f[0] in _ATTRIBUTES and is_text(f[2])),
        alike=tuple(_alike(said)),
        held=tuple((str(f[1]), str(f[2])[1:-1]) for f in said if f[0] == "everywhere" and is_text(f[2])),
    )


def _texts_in(body: Sequence[Expr]) -> Iterator[tuple[str, Expr]]:
    """Variables that are said to be some text, such as the name of an op or a type, or what an attribute is."""
    for fact in body:
        if isinstance(fact, tuple) and fact[0] == "=":
            names = [part for part in fact[1:] if isinstance(part, str) and is_variable(part)]
            yield from ((name, text) for text in fact[1:] if is_text(text) for name in names)


def _alike(said: Sequence[tuple[Expr, ...]]) -> Iterator[tuple[str, ...]]:
    names: dict[str, dict[str, None]] = {}
    for f in said:
        if f[0] == "named" and is_variable(f[1]) and is_variable(f[2]):
            names.setdefault(str(f[2]), {})[str(f[1])] = None
    yield from (tuple(keys) for keys in names.values() if len(keys) > 1)


def _attribute(fact: tuple[Expr, ...]) -> tuple[str, str, Expr | None]:
    return str(fact[1]), str(fact[2])[1:-1], fact[3] if len(fact) > 3 else None


def _is_literal(term: Expr) -> bool:
    return isinstance(term, str) and not is_variable(term)


def is_text(term: Expr) -> bool:
    """Whether it is text, and no variable."""
    return isinstance(term, str) and term[:1] == '"'


def _said(base: RuleBase, fact: Expr, suffix: str, fresh_numbers: Iterator[int]) -> Iterator[tuple[Expr, ...]]:
    """What a fact says, as far as that is a conjunction of equations and names."""
    if isinstance(fact, str) or not fact:
        return
    head, *columns = fact
    meaning = base.meanings.get(str(head))
    if meaning is not None:
        values = dict(zip(meaning.columns, columns, strict=False))
        yield from _said(base, substituted(meaning.formula, values), suffix + ".", fresh_numbers)
    elif head == "and":
        for n, part in enumerate(columns):
            yield from _said(base, part, suffix + str(n), fresh_numbers)
    elif head == "some":
        fresh = {v: f"{v}{suffix}/{next(fresh_numbers)}" for v in variables(columns[0])}
        yield from _said(base, substituted(columns[1], dict(fresh)), suffix, fresh_numbers)
    elif head == "=>" and isinstance(columns[1], tuple) and columns[1][0] == "of-type":
        term = columns[1][1]  # what an op gives wherever it is defined
        if isinstance(term, tuple) and term[0] == "Op":
            yield ("gives", term[1], columns[1][2])
    elif head in ("=", "named", "of-type", "everywhere", *_ATTRIBUTES):
        yield fact


def _variable_first(equation: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    a, b = equation[1], equation[2]
    return (b, a) if isinstance(b, str) and not isinstance(a, str) else (a, b)
