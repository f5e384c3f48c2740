"""What to say of a rule besides whether it was caught: how far one may trust that it was not.

In: a rule, its base, and how often it matched. Out: lines for a person. A relation without a meaning is judged where it
is used; a guard that was never false was not tested; few instances are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from eqsat_layout.egraph.expressions import Expr, is_variable, quoted, show, unquoted, variables
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.egraph.rule_grammar import COMPUTED
from eqsat_layout.soundness.rules.body_searches import BodySearch, is_text
from eqsat_layout.soundness.rules.rule_base import RuleBase, without_meaning
from eqsat_layout.soundness.rules.term_types import type_called

_NAMES = ("String", "i64")
_SHOWN = 3
"""Values of an attribute that are shown."""


def remarks_on(rule: Rule, base: RuleBase, instances: int, wanted: int) -> Iterator[str]:
    """All of them, but for those on guards."""
    if 0 < instances < wanted:
        yield f"{instances:,} instances of {wanted:,}"
    for relation in without_meaning(rule, base):
        users = [str(r) for r in base.rules if relation in heads(r)]
        where = f"judged where it is used: {', '.join(users)}" if users else "and no rule uses it"
        yield f"({relation} ...) has no meaning, {where}"
    yield from tainted(rule, base)


def tainted(rule: Rule, base: RuleBase) -> Iterator[str]:
    """What a rule is concluded through that has no meaning, and which rules say that."""
    for relation in dict.fromkeys(heads(rule)):
        sources = [str(r) for r in base.rules if relation in without_meaning(r, base)]
        if sources:
            yield f"through ({relation} ...), which has no meaning, from {', '.join(sources)}"


def guards_of(rule: Rule, base: RuleBase) -> list[Expr]:
    """The facts of a body that only test names and numbers which the others bind."""
    found: list[Expr] = []
    for fact in rule.body:
        rest = [other for other in rule.body if other is not fact]
        needed = {name for other in (fact, *rest) if other is fact or _is_computed(other) for name in variables(other)}
        if isinstance(fact, tuple) and _tests(fact, base) and needed <= _bound(rest):
            found.append(fact)
    return found


def never_false(guard: Expr) -> str:
    """What is said of a guard that no match of the rest of its body fails."""
    return f"{show(guard)} is never false in the models: nothing tests it"


def never_held(want: Expr, why: str) -> str:
    """What is said of a format that is wanted in a memory which holds none of the tensors that it is wanted of."""
    return f"{show(want)} is of no use: the memory holds no such tensor in any instance ({why}), and no copy is made"


def never_true(guard: Expr, rule: Rule, lexicons: Iterable[Mapping[str, Iterable[tuple[Any, ...]]]]) -> str:
    """What is said of a guard without which a body has matches, and with which it has none.

    ``lexicons``: rows about names. An attribute is said in one way, whatever the program says: the axes of a view are
    numbers, and none of them is None.
    """
    said = f"{show(guard)} is never true in the models"
    if not isinstance(guard, tuple) or guard[0] != "attr" or len(guard) != 4 or is_variable(guard[2]):
        return said
    names = {unquoted(str(f[2])) for f in rule.body if isinstance(f, tuple) and f[:2] == ("is", guard[1])}
    seen: dict[str, None] = {}
    for rows in lexicons:
        keys = {key for key, name in rows.get("is", ()) if name in names}
        told = (v for k, n, v in rows.get("attr", ()) if k in keys and n == unquoted(str(guard[2])))
        seen.update(dict.fromkeys(told))
    few = [quoted(value) for value in islice(seen, _SHOWN)]
    default = show(("default", *guard[1:3]))
    return f"{said}, where it is {', '.join(few)}; {default} says that it is as if it were left out" if few else said


def no_such_type(sought: BodySearch) -> str:
    """Which type the body calls by a name that is none; empty if there is none such."""
    names = [str(ty) for _, ty in (*sought.typed, *sought.gives) if is_text(ty) and type_called(ty) is None]
    return f'no type is called {names[0]}; that of 2 x 3 numbers is "float32[2,3]"' if names else ""


def _tests(fact: tuple[Expr, ...], base: RuleBase) -> bool:
    head = str(fact[0])
    if head in base.relations:
        return set(base.relations[head]) <= set(_NAMES)
    return head in COMPUTED and any(is_variable(part) for part in fact[1:])


def _bound(facts: list[Expr]) -> set[str]:
    """The variables that facts bind: those of rows and terms, not those that are only compared."""
    binding = [fact for fact in facts if isinstance(fact, tuple) and fact[0] not in COMPUTED and not _is_computed(fact)]
    return {name for fact in binding for name in variables(fact)}


def _is_computed(fact: Expr) -> bool:
    return isinstance(fact, tuple) and any(isinstance(part, tuple) and part[0] in COMPUTED for part in fact[1:])


def heads(rule: Rule) -> list[str]:
    """What the facts of a body are about: relations, constructors, functions."""
    return [str(fact[0]) for fact in rule.body if isinstance(fact, tuple)]
