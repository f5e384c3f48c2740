"""Names that several facts of a body speak of, such as two ops that make the same of some constants.

In: a rule, and rows about names. Out: scopes: names for variables of the body, as rows have them, of which its terms
are then built. Terms that are drawn without regard to such facts hardly ever have the names that all of them need.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat_layout.egraph.expressions import is_variable, literal_sort, unquoted
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.rule_base import RuleBase

_NAMES = ("String", "i64")
_OF_OPS = ("is", "attr", "int-attr", "default")
"""What ops are called, which they are drawn by anyhow."""
_BEGUN = 4
"""Times as many are begun as are wanted."""

Row = tuple[Any, ...]
Fact = tuple[str, ...]


def joined_facts(base: RuleBase, rule: Rule) -> tuple[Fact, ...]:
    """The facts about names in a body that have a variable in common with another one."""
    facts = [
        tuple(map(str, fact))
        for fact in rule.body
        if isinstance(fact, tuple)
        and fact[0] not in _OF_OPS
        and set(base.relations.get(str(fact[0]), ("",))) <= set(_NAMES)
        and all(isinstance(part, str) for part in fact)
    ]
    uses = Counter(name for fact in facts for name in {*fact[1:]} if is_variable(name))
    return tuple(fact for fact in facts if any(uses[name] > 1 for name in fact[1:]))


def scopes(
    facts: Sequence[Fact], rows: Mapping[str, Sequence[Row]], count: int, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Up to so many; two facts are two rows: what one row says is no coincidence."""
    found = 0
    for _ in range(_BEGUN * count if facts else 0):
        scope: dict[str, Any] | None = {}
        taken: set[tuple[str, Row]] = set()
        for fact in rng.sample(facts, len(facts)):
            scope = _with(fact, rows.get(fact[0], ()), scope, taken, rng) if scope is not None else None
        if scope is not None:
            yield scope
            found += 1
        if found == count:
            break


def _with(
    fact: Fact, rows: Sequence[Row], scope: dict[str, Any], taken: set[tuple[str, Row]], rng: random.Random
) -> dict[str, Any] | None:
    """The scope with what one more fact says; None where no row fits it."""
    fitting = [row for row in rows if (fact[0], row) not in taken and _fits(fact, row, scope)]
    if not fitting:
        return None
    row = rng.choice(fitting)
    taken.add((fact[0], row))
    return {**scope, **{name: cell for name, cell in zip(fact[1:], row, strict=True) if is_variable(name)}}


def _fits(fact: Fact, row: Row, scope: Mapping[str, Any]) -> bool:
    known = dict(scope)
    for part, cell in zip(fact[1:], row, strict=True):
        if is_variable(part):
            if known.setdefault(part, cell) != cell:
                return False
        elif cell != (unquoted(part) if literal_sort(part) == "String" else int(part)):
            return False
    return True
