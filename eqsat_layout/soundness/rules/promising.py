"""Which instances of a rule's body are worth a place in a model: those that pass its guards, and of which it makes what
it says.

In: a rule, the attributes that an instance has by the variables that stand for them, and the types of its tensors.
Out: whether the rule claims anything there. A guard that few instances pass leaves the rest of the rule untested, so
the numbers that guards speak of, and those beside them, are drawn on purpose.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from types import CodeType
from typing import Any

import tvm_ffi
from tvm import relax

from eqsat_layout.egraph.attribute_text import read_attributes, shown
from eqsat_layout.egraph.expressions import Expr, arguments_of, is_variable, literal_sort, unquoted
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.errors import ILL_TYPED, Refused
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import make_call
from eqsat_layout.graph.relax_form import relax_type
from eqsat_layout.soundness.rules.computed_terms import told_apart
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.schema import LONG, normalized, small_type

Told = Mapping[Any, Any]
"""Attributes by the variables of a rule."""
Types = Mapping[str, Any]
"""Types of its tensors: one, or several of a tuple."""

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "min": min,
    "max": max,
}
_BOUNDING = ("min", "max", "%")
_BOUNDING_TEXT = ("min(", "max(", "%", "//")


_LONGEST_USUAL = 6
"""Elements that axes have at most, unless there is a reason."""


class _UnknownError(Exception):
    """What nothing is known of yet."""


class Promise:
    """What a rule asks of the instances of its body beyond their terms."""

    def __init__(self, base: RuleBase, rule: Rule):
        self._builders = base.builders
        self._guards = [fact for fact in told_apart(rule.body) if isinstance(fact, tuple) and fact[0] in _COMPARED]
        self._claims = [a for a in rule.actions if isinstance(a, tuple) and a[0] in ("becomes", "may-become")]
        self._known: dict[Any, bool] = {}
        self._made_types: dict[Any, TensorType | None] = {}
        self.numbers = tuple(dict.fromkeys(self._beside(rule)))
        """Those that its guards speak of, and those next to them."""

    def _beside(self, rule: Rule) -> Iterator[Any]:
        spoken: list[Any] = [*_numbers_in(self._guards), *_bounds_in(rule.actions), *_places_in(rule.body)]
        for name in _made_in(rule.actions):
            function = getattr(getattr(self._builders.get(name), "__self__", None), "function", None)
            if function is not None:
                spoken += _constants(function.__code__, function.__globals__)
        for number in spoken:
            if isinstance(number, int) and abs(number) <= LONG:
                yield from (number, number + 1, number - 1)
            elif isinstance(number, float):
                yield from (number, number / 2, number * 2)

    def is_kept(self, told: Told, types: Types) -> bool:
        """Whether the rule claims something of an instance, as far as can be told without running it."""
        key = repr(sorted(told.items(), key=lambda one: one[0])), repr(sorted(types.items(), key=lambda one: one[0]))
        if key not in self._known:
            self._known[key] = self._claims_something(told, types)
        return self._known[key]

    def _claims_something(self, told: Told, types: Types) -> bool:
        return all(self._passes(guard, told) for guard in self._guards) and all(
            self._is_made(claim, told, types) for claim in self._claims
        )

    def _passes(self, guard: tuple[Expr, ...], told: Told) -> bool:
        try:
            values = [_value(part, told) for part in guard[1:]]
            return all(_COMPARED[str(guard[0])](*_of_one_sort(a, b)) for a, b in pairwise(values))
        except (_UnknownError, TypeError):
            return True

    def _is_made(self, claim: tuple[Expr, ...], told: Told, types: Types) -> bool:
        """Whether TVM types what is asked for; where the claim is of one type only, as that."""
        if len(claim) != 3 or not isinstance(claim[2], tuple) or claim[2][0] != "Make":
            return True
        variables = _variables(types)
        wanted = types.get(str(claim[1]))
        try:
            made = normalized(self._made(claim[2], told, variables))
        except _UnknownError:
            return True
        except (*ILL_TYPED, Refused):
            return False
        if claim[0] == "becomes" or not isinstance(wanted, TensorType) or not isinstance(made.ty, relax.TensorType):
            return True
        return bool(tvm_ffi.structural_equal(made.ty, relax_type(wanted, None, {})))

    def claimed(self, told: Told, types: Types) -> Iterator[tuple[str, TensorType]]:
        """The tensors of which the rule says that they may become what it makes, with the type of that, as far as what
        this is made of is known."""
        variables = _variables(types)
        for claim in self._claims:
            if len(claim) == 3 and isinstance(claim[1], str) and claim[1] not in types and isinstance(claim[2], tuple):
                key = repr(claim), repr(sorted(told.items(), key=str)), repr(sorted(types.items(), key=str))
                if key not in self._made_types:
                    self._made_types[key] = self._made_type(claim[2], told, variables)
                ty = self._made_types[key]
                if ty is not None:
                    yield claim[1], ty

    def _made_type(self, term: Expr, told: Told, variables: Mapping[str, Any]) -> TensorType | None:
        try:
            return small_type(normalized(self._made(term, told, variables)).ty)
        except (_UnknownError, *ILL_TYPED, Refused):
            return None

    def _made(self, term: Expr, told: Told, variables: Mapping[str, Any]) -> Any:
        if isinstance(term, str):
            if term not in variables:
                raise _UnknownError
            return variables[term]
        if term[0] != "Make" or literal_sort(str(term[1])) != "String":
            raise _UnknownError
        name, (terms, rest) = unquoted(str(term[1])), arguments_of(term[3])
        operands = [self._made(one, told, variables) for one in terms]
        if not isinstance(rest, tuple):
            raise _UnknownError
        attributes = read_attributes(_text(term[2], told))
        own = self._builders.get(name)
        return make_call(name, operands, attributes) if own is None else own(operands, attributes)


def _variables(types: Types) -> dict[str, Any]:
    return {v: relax.Var(v, relax_type(ty, None, {})) for v, ty in types.items() if isinstance(ty, TensorType)}


def _text(settings: Expr, told: Told) -> str:
    """Attributes as a rule puts them together."""
    if isinstance(settings, tuple):
        return "".join(_text(part, told) for part in settings[1:])
    if literal_sort(settings) == "String":
        return unquoted(settings)
    return shown(_value(settings, told))


def _value(expr: Expr, told: Told) -> Any:
    if isinstance(expr, tuple):
        compute = _COMPUTED.get(str(expr[0]))
        if compute is None or len(expr) != 3:
            raise _UnknownError
        return compute(_value(expr[1], told), _value(expr[2], told))
    sort = literal_sort(expr)
    if sort is not None:
        return int(expr) if sort == "i64" else _Text(unquoted(expr))
    if expr not in told:
        raise _UnknownError
    return told[expr]


class _Text(str):
    """A string of the rule, which is how a value is shown."""


def _of_one_sort(a: Any, b: Any) -> tuple[Any, Any]:
    is_text = isinstance(a, _Text) or isinstance(b, _Text)
    return (
        (str(a if isinstance(a, _Text) else shown(a)), str(b if isinstance(b, _Text) else shown(b)))
        if is_text
        else (a, b)
    )


def _numbers_in(exprs: Iterable[Expr]) -> Iterator[int]:
    for expr in exprs:
        if isinstance(expr, tuple):
            yield from _numbers_in(expr)
        elif literal_sort(expr) == "i64":
            yield int(expr)
        elif literal_sort(expr) == "String" and unquoted(expr).lstrip("-").isdigit():
            yield int(unquoted(expr))


def _bounds_in(exprs: Iterable[Expr]) -> Iterator[int | float]:
    """Numbers beside which attributes are worked out in another way: bounds, and what remainders are taken of."""
    for expr in exprs:
        if isinstance(expr, tuple):
            yield from _numbers_in([expr]) if expr[0] in _BOUNDING else _bounds_in(expr)
        elif literal_sort(expr) == "String" and any(word in expr for word in _BOUNDING_TEXT):
            for number in re.findall(r"\b\d+(?:\.\d+)?\b", expr):
                yield float(number) if "." in number else int(number)


def _places_in(body: Iterable[Expr]) -> Iterator[int]:
    """Numbers within attributes that a body says, which end axes that are no longer."""
    for fact in body:
        said = str(fact[3]) if isinstance(fact, tuple) and fact[0] == "attr" and len(fact) == 4 else ""
        yield from (number for number in map(int, re.findall(r"\d+", said)) if number > _LONGEST_USUAL)


def _made_in(exprs: Iterable[Expr]) -> Iterator[str]:
    """The names of ops that terms ask for."""
    for expr in exprs:
        if isinstance(expr, tuple):
            if expr[:1] == ("Make",) and not is_variable(expr[1]):
                yield unquoted(str(expr[1]))
            yield from _made_in(expr)


def _constants(code: CodeType, known: Mapping[str, Any]) -> Iterator[Any]:
    """Numbers in a function, and those that it calls by a name of its module."""
    waiting = [*code.co_consts, *(known[name] for name in code.co_names if isinstance(known.get(name), int | float))]
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, CodeType):
            yield from _constants(constant, known)
        elif isinstance(constant, tuple | frozenset):
            waiting += constant
        elif isinstance(constant, int | float) and not isinstance(constant, bool):
            yield constant
