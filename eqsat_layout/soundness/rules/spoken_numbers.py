"""Numbers that rules speak of.

In: rules. Out: the numbers in their texts that are none of the few that every random tensor has, each with its
neighbours: what a rule says of a number shows at it, or beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from eqsat_layout.egraph.expressions import Expr, literal_sort
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.term_types import type_called

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
_USUAL = 2
"""Numbers up to so large are in every tensor, in steps of a quarter."""


@lru_cache(1024)
def spoken_numbers(rules: tuple[Rule, ...]) -> tuple[float, ...]:
    """The numbers of all rules, in order."""
    found = dict.fromkeys(number for rule in rules for number in _numbers_in((rule.body, rule.actions)))
    unusual = [n for n in found if abs(n) > _USUAL or 4 * n != int(4 * n)]
    return tuple(dict.fromkeys(one for n in unusual for one in (n, n + 1, n - 1, -n)))


def _numbers_in(exprs: Iterable[Expr]) -> Iterator[float]:
    for expr in exprs:
        if isinstance(expr, tuple):
            yield from _numbers_in(expr)
        elif literal_sort(expr) == "String" and type_called(expr) is None:
            yield from map(float, _NUMBER.findall(expr))
