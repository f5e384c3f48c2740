"""Reference interpreter of the e-graph's language: terms and meanings, evaluated in NumPy.

In: terms and formulas, and :class:`Values` of a model. Out: values of terms, buffers with what in them is defined, and
whether a formula is true.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from eqsat_layout.egraph.expressions import Expr, arguments_of, literal_sort, show, variables
from eqsat_layout.soundness.rules.ill_typed import IllTypedError, NotMadeError
from eqsat_layout.soundness.rules.meanings import expanded, free_variables, sorts_in
from eqsat_layout.soundness.rules.rule_base import RuleBase
from eqsat_layout.soundness.rules.values import Values, pick

_LOOKED_AT = 20_000
"""Values looked at for ``some`` in one model, a second or two: what is then begun to be looked for is not decided."""


class MeaninglessError(Exception):
    """A relation or function that nobody gave a meaning to."""


class TermEvaluator:
    """Terms and formulas of rules over :class:`Values`; names of variables are looked up in a scope."""

    def __init__(self, values: Values, base: RuleBase):
        self.values, self.base = values, base
        self._free: dict[str, dict[str, str]] = {}
        self._wanted: dict[Expr, tuple[dict[str, str], list[Expr]]] = {}
        self._looked_at = 0
        v = values
        self._terms: dict[str, Callable[..., Any]] = {
            "Op": v.op,
            "at": lambda k, x: v.op(k, (x,)),
            "Get": v.get,
            "Arg": lambda x, rest: (x, *rest),
            "End": lambda: (),
            "Const": v.constant,
            "Param": lambda name: _found(v.params, name),
            "Ref": lambda i: pick(v.refs, i),
            "ARef": lambda i: pick(v.lists, i),
            "window": v.window,
            "lay": v.lay,
            "pick": pick,
            "drop": drop,
            "cons": lambda head, rest: f"{head} {rest}" if rest else head,
            "nth-of": lambda name, i: pick(v.names.lists.get(name, ()) if name[:1] == "[" else (), i),
            "constants-named": lambda hs: tuple(v.constant(h) for h in hs.split(",") if h),
            "graph": v.graph,
            "node": lambda r, n, a: v.node(r, "node", n, a),
            "nodes": lambda r, m, a: v.node(r, "nodes", m, a),
            "Make": partial(v.makes.make, v),
            "+": _plus,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "min": min,
            "max": max,
        }
        self._tests: dict[str, Callable[..., bool]] = {
            "named": v.is_named,
            "fits": v.fits,
            "fits-all": v.fits_all,
            "serves": lambda a, b: a.serves(b),
            "computes": v.computes,
            "reads": v.reads,
            "arrives": v.arrives,
            "of-type": lambda x, t: v.makes.type_name(v, x) == t,
            "of-types": lambda a, ts: v.makes.type_names(v, a) == ts,
            "attribute": lambda k, n, x: repr(v.makes.attribute(v, k, n)) == x,
            "attribute-number": lambda k, n, i: repr(v.makes.attribute(v, k, n)) == repr(i),  # True is none
            "by-default": lambda k, n: v.makes.is_default(v, k, n),
            "same-type": lambda x, y: v.makes.type_name(v, x) == v.makes.type_name(v, y),
            "everywhere": lambda x, number: v.uniform(x) == number,
            "=": lambda first, *rest: all(v.equal(first, other) for other in rest),
            "!=": lambda a, b: not v.equal(a, b),
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }

    def term(self, term: Expr, scope: Mapping[str, Any]) -> Any:
        """The value of a term; :class:`IllTypedError` where it has none."""
        if isinstance(term, str):
            if term in scope:
                return scope[term]
            sort = literal_sort(term)
            if sort is None:
                raise IllTypedError(f"{term} stands for nothing")
            return term[1:-1] if sort == "String" else int(term)
        head, *parts = term
        function = self._terms.get(str(head))
        if function is None:
            raise MeaninglessError(f"{show(term)} has no meaning")
        return function(*(self.term(part, scope) for part in parts))

    def holds(self, formula: Expr, scope: Mapping[str, Any]) -> bool:
        """Whether a formula is true; an ill-typed equality is not."""
        assert not isinstance(formula, str)
        head, *parts = formula
        if head == "false":
            return False
        if head == "and":
            return all(self.holds(part, scope) for part in parts)
        if head == "=>":
            return not self.holds(parts[0], scope) or self.holds(parts[1], scope)
        if head == "ok":
            return self.is_defined(parts[0], scope)
        if head == "some":
            return self._some(formula, scope)
        if head in self.base.relations:
            return self.means(str(head), [self._tried(part, scope) for part in parts])
        test = self._tests.get(str(head))
        if test is None:
            raise MeaninglessError(f"{show(formula)} has no meaning")
        try:
            return bool(test(*(self.term(part, scope) for part in parts)))
        except IllTypedError:
            return False

    def _some(self, formula: tuple[Expr, ...], scope: Mapping[str, Any]) -> bool:
        if self._looked_at > _LOOKED_AT:
            raise NotMadeError(f"what {show(formula)} says is looked for no longer in a model where it took so long")
        if formula not in self._wanted:
            self._wanted[formula] = _sought(formula, self.base)
        was_trying, self.values.is_trying = self.values.is_trying, True
        try:
            return self._exists(*self._wanted[formula], scope)
        finally:
            self.values.is_trying = was_trying

    def _exists(self, names: Mapping[str, str], tests: Sequence[Expr], scope: Mapping[str, Any]) -> bool:
        """Whether there are values of ``names`` for which all tests are true.

        One after the other, and each test as soon as it has its names: few ops are called as a formula says, and what
        all of them make of all tensors is too much to be tried.
        """
        self._looked_at += 1
        open_tests = [[name for name in variables(test) if name in names] for test in tests]
        if not all(self.holds(test, scope) for test, left in zip(tests, open_tests, strict=True) if not left):
            return False
        if not names:
            return True
        waiting = [(test, left) for test, left in zip(tests, open_tests, strict=True) if left]
        name = min(names, key=lambda one: ([one] not in [left for _, left in waiting], one))
        rest = {other: sort for other, sort in names.items() if other != name}
        later = [test for test, _ in waiting]
        values = self._fitting(name, names[name], later, scope)
        return any(self._exists(rest, later, {**scope, name: value}) for value in values)

    def _fitting(self, name: str, sort: str, tests: Sequence[Expr], scope: Mapping[str, Any]) -> Iterator[Any]:
        """What a variable may be, as far as tests tell it without trying: ops take operands of their types, and give
        such results. First what is that in a term of the model."""
        values, first, may_be = self.values, dict[Any, None](), None
        more: list[tuple[int, list[int]]] = []
        for made, head, cells in (call for test in tests for call in _calls_in(test)):
            key, y = scope.get(str(head)), scope.get(str(made))
            terms = [(k, a) for k, a in values.makers(y) if key in (None, k) and len(a) == len(cells)]
            if head == name:
                first.update(dict.fromkeys(k for k, _ in terms))
                may_be = self._domain(sort) if may_be is None else may_be
                may_be = may_be if y is None else [k for k in may_be if values.may_give(k, y)]
                more += [] if y is None else [(y, [scope.get(str(cell), y) for cell in cells])]
            for place in [place for place, cell in enumerate(cells) if cell == name]:
                first.update(dict.fromkeys(a[place] for _, a in terms))
                taken = None if key is None else values.taken(key, place)
                may_be = taken if may_be is None or (taken is not None and len(taken) < len(may_be)) else may_be
        may_be = self._domain(sort) if may_be is None else may_be
        yield from (known := dict.fromkeys([*(x for x in first if x in may_be), *may_be]))
        for y, operands in more:
            yield from (key for key in self._remade(name, tests, scope, y, operands) if key not in known)

    def _remade(
        self, name: str, tests: Sequence[Expr], scope: Mapping[str, Any], y: int, operands: Sequence[int]
    ) -> Iterator[str]:
        """Ops that no term of the model has: those that are as the tests say, for operands of these types. Which ops a
        model has is chance."""
        values = self.values
        own = [test for test in tests if not variables(test).keys() - {name, *scope}]
        for key in list(values.signatures):
            if len(values.signatures[key].operands) == len(operands) and all(
                self.holds(test, {**scope, name: key}) for test in own
            ):
                try:
                    made = values.makes.op_key(values, key, operands)
                except IllTypedError:
                    continue
                if values.may_give(made, y):
                    yield made

    def is_defined(self, term: Expr, scope: Mapping[str, Any]) -> bool:
        """Whether the term has a value."""
        return self._tried(term, scope) is not None

    def means(self, relation: str, row: Sequence[Any]) -> bool:
        """Whether a row of a relation is true; :class:`MeaninglessError` if it has no meaning."""
        meaning = self.base.meanings.get(relation)
        if meaning is None:
            raise MeaninglessError(f"nobody says what {relation!r} means")
        if any(value is None for value in row):
            return False
        scope = dict(zip(meaning.columns, row, strict=True))
        free = self._free.get(relation)
        if free is None:
            free = self._free[relation] = free_variables(meaning, self.base)
        if not free:
            return self.holds(meaning.formula, scope)
        return all(self.holds(meaning.formula, {**scope, **more}) for more in self._choices(free))

    def premise_missed(self, relation: str, row: Sequence[Any]) -> str:
        """The premise of what a row means, where it is not true and the row says nothing; else empty."""
        meaning = self.base.meanings[relation]
        if not isinstance(meaning.formula, tuple) or meaning.formula[0] != "=>" or self._free.get(relation):
            return ""  # of one of all that it is about it may say something
        _, premise, claim = meaning.formula
        if claim == ("false",):
            return ""  # it says that the premise is not true
        return "" if self.holds(premise, dict(zip(meaning.columns, row, strict=True))) else show(premise)

    def _choices(self, sorts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Everything in the model that the variables may be."""
        domains = [self._domain(sort) for sort in sorts.values()]
        for row in itertools.product(*domains):
            yield dict(zip(sorts, row, strict=True))

    def _domain(self, sort: str) -> Sequence[Any]:
        if sort == "Args":
            return self.values.operand_lists()
        if sort == "Tensor":
            return self.values.all()
        if sort == "String":
            names = self.values.names
            return [*self.values.parts, *self.values.signatures, *names.formats, *names.lists, *names.constants]
        raise MeaninglessError(f"there is no telling what all of sort {sort} are")

    def _tried(self, term: Expr, scope: Mapping[str, Any]) -> Any:
        try:
            return self.term(term, scope)
        except IllTypedError:
            return None


def drop(operands: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The list without its first ``index`` operands."""
    if not 0 <= index <= len(operands):
        raise IllTypedError(f"no {index} operands")
    return operands[index:]


def _sought(formula: Expr, base: RuleBase) -> tuple[dict[str, str], list[Expr]]:
    """The variables of a ``some`` with their sorts, and what is to be true of them, what is told soonest first."""
    names: dict[str, None] = {}
    while isinstance(formula, tuple) and formula[0] == "some":
        names |= variables(formula[1])
        formula = formula[2]
    sorts = sorts_in(formula, base)
    tests = list(formula[1:]) if isinstance(formula, tuple) and formula[0] == "and" else [formula]
    tests.sort(key=lambda test: sum(isinstance(part, tuple) for part in test))
    return {name: sorts.get(name, "") for name in names}, tests


def _calls_in(formula: Expr, made: Expr = "") -> Iterator[tuple[Expr, Expr, list[Expr]]]:
    """The calls without which a formula is not true: what each has to give, if it is said, the op, and its operands."""
    if isinstance(formula, str) or not formula or formula[0] in ("=>", "some"):
        return  # true of what means nothing, or of another variable of that name
    form = expanded(formula)
    if form[0] == "Op" and len(form) == 3:
        yield made, form[1], arguments_of(form[2])[0]
    for part in form[1:]:
        others = [other for other in form[1:] if isinstance(other, str)] if form[0] == "=" else []
        yield from _calls_in(part, others[0] if others else "")


def _plus(*terms: Any) -> Any:
    return sum(terms[1:], terms[0]) if isinstance(terms[0], int) else "".join(terms)


def _found(table: Mapping[str, Any], name: str) -> Any:
    if name not in table:
        raise IllTypedError(f"there is no {name!r}")
    return table[name]
