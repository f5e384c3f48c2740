"""What a body computes within its facts, such as the ``(+ a 1)`` of ``(int-attr k "axis" (+ a 1))``.

In: a body. Out: the same with a variable in the place of each, and an equation that says what it is: models are made of
facts whose columns are variables or literals.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_layout.egraph.expressions import Expr, literal_sort, quoted, show, unquoted, variables
from eqsat_layout.egraph.rule_grammar import COMPUTED


def told_apart(body: Sequence[Expr]) -> tuple[Expr, ...]:
    """The body, and behind it what the variables are; each is called as what it stands for is written."""
    told: dict[Expr, Expr] = {}
    facts = [fact if _head(fact) in COMPUTED else _without_computed(fact, told) for fact in body]
    return (*facts, *(("=", name, term) for term, name in told.items()))


def _without_computed(term: Expr, told: dict[Expr, Expr]) -> Expr:
    """``told``: grows by what is computed below it."""
    if isinstance(term, str):
        return term
    if _head(term) == "=":  # an equation says already what a variable is
        return tuple(p if _head(p) in COMPUTED else _without_computed(p, told) for p in term)
    if _head(term) not in COMPUTED:
        return tuple(_without_computed(part, told) for part in term)
    if not variables(term):
        joined = _joined(term[1:]) if _head(term) == "+" else None
        if joined is not None:
            return joined
    return told.setdefault(term, show(term))


def _joined(parts: Sequence[Expr]) -> Expr | None:
    """Texts in a row."""
    if all(isinstance(part, str) and literal_sort(part) == "String" for part in parts):
        return quoted("".join(unquoted(str(part)) for part in parts))
    return None


def _head(term: Expr) -> str:
    return str(term[0]) if isinstance(term, tuple) and term else ""
