"""Proofs of rules: what the body means implies what the actions say, for all shapes, maps and values.

In: a :class:`RuleBase`. Out: per rule, whether z3 proves it. Ops, layouts and buffers are uninterpreted, so a proof
holds for every op and every extent, symbolic ones too; it rests on the meanings of the relations, of which those that
the host answers are fuzzed, and on :data:`AXIOMS`. Needs z3 (the dependency group ``test`` has it).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_layout.egraph.expressions import Expr, literal_sort, parse, show, variables
from eqsat_layout.egraph.rule_forms import Rule
from eqsat_layout.soundness.rules.axioms import AXIOMS, HEADS, PARTIAL
from eqsat_layout.soundness.rules.meanings import FUNCTIONS, expanded, never_holds, sorts_in, unbound
from eqsat_layout.soundness.rules.rule_base import RuleBase, takes_back, without_meaning

STEPS = 5_000_000
"""z3's own count of what it does for one question, about a second: a proof is found on every machine, or on none."""
QUICK_STEPS = 250_000
"""For the question whether a body contradicts itself."""

_OWN = {
    "head": (("Args",), "Tensor"),
    "tail": (("Args",), "Args"),
    "is-cons": (("Args",), "Bool"),
    "length": (("Args",), "i64"),
    "joined": (("String", "String"), "String"),
    "list-length": (("String",), "i64"),
    "is-one": (("String",), "Bool"),
    "is-list": (("String",), "Bool"),
    "is-tuple": (("Tensor",), "Bool"),
    "extents": (("Tensor",), "i64"),
    "format-extents": (("String",), "i64"),
    "inner": (("String",), "i64"),
    "added": (("String",), "i64"),
}
"""Functions that only axioms need; ``extents`` is the sum of a tensor's, ``inner`` that within a border's window."""


@dataclass(frozen=True)
class Proof:
    """``proved``, or ``why`` not: an action that does not follow, or something that the prover has no words for.

    ``why`` also says it where a body never holds, which proves anything. ``carried``: relations without a meaning that
    it concludes, of which nothing is proved.
    """

    rule: Rule
    proved: bool
    why: str = ""
    carried: tuple[str, ...] = ()

    @property
    def is_vacuous(self) -> bool:
        """Proved because the body never holds."""
        return self.proved and bool(self.why)

    @property
    def word(self) -> str:
        """What to say of it in a word or two."""
        if self.proved and self.carried:
            return f"{self.carried[0]} has no meaning"
        return "never applies" if self.is_vacuous else "proved" if self.proved else "not proved"


def prove_all(base: RuleBase, rules: Iterable[Rule] | None = None) -> list[Proof]:
    """Tries to prove each rule; :class:`RuleError` where a meaning can't be read."""
    prover = Prover(base)
    return [prover.prove(rule) for rule in (base.rules if rules is None else rules)]


class Prover:
    """Proves rules over the meanings of ``base``."""

    def __init__(self, base: RuleBase, known: Prover | None = None):
        """``known``: a prover whose axioms serve where they say the same: to read them takes longer than a proof."""
        import z3

        self._z3 = z3
        self._base = base
        self._logic = _Logic(z3, base)
        is_alike = known is not None and _what_axioms_name(known._base) == _what_axioms_name(base)
        self._axioms: list[Any] = known._axioms if known is not None and is_alike else self._logic.axioms()

    def prove(self, rule: Rule) -> Proof:
        """Whether the actions follow from the body."""
        never = never_holds(rule.body, self._base)
        if never:
            return Proof(rule, True, f"its body never holds: {never}")
        if takes_back(rule):
            return Proof(rule, True)
        logic, z3 = self._logic, self._z3
        try:
            scope = {name: logic.variable(name, sort) for name, sort in self._base.variables(rule).items()}
            premises = [logic.fact(fact, scope) for fact in rule.body]
            goals = list(self._goals(rule, scope))
        except Unspeakable as error:
            return Proof(rule, False, str(error))
        for action, goal in goals:
            solver = self._solver(STEPS)
            solver.add(*self._axioms, *premises, z3.Not(goal))
            if solver.check() != z3.unsat:
                return Proof(rule, False, f"{show(action)} does not follow")
        solver = self._solver(QUICK_STEPS)
        solver.add(*self._axioms, *premises)
        never = "its facts contradict each other" if solver.check() == z3.unsat else ""
        return Proof(rule, True, f"its body never holds: {never}" if never else "", without_meaning(rule, self._base))

    def _solver(self, steps: int) -> Any:
        solver = self._z3.Solver()
        solver.set("rlimit", steps, "auto_config", False, "mbqi", False)
        return solver

    def _goals(self, rule: Rule, scope: dict[str, Any]) -> Iterable[tuple[Expr, Any]]:
        scope = dict(scope)
        for action in rule.actions:
            if isinstance(action, tuple) and action[0] == "let":
                _, name, term = action
                scope[str(name)] = self._logic.term(term, scope)
                yield action, self._logic.defined(term, scope)
            else:
                yield action, self._logic.fact(action, scope)


def _what_axioms_name(base: RuleBase) -> tuple[object, ...]:
    """All of a base that axioms are read by: terms of its constructors; relations, if they have such names."""
    relations = {head: (base.relations[head], base.meanings.get(head)) for head in HEADS if head in base.relations}
    return base.constructors, relations


class Unspeakable(Exception):
    """Something that has no meaning here."""


@dataclass
class _Logic:
    """Formulas and terms as z3's."""

    z3: Any
    base: RuleBase
    sorts: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        z3 = self.z3
        self.sorts = {name: z3.DeclareSort(name) for name in ("Tensor", "Args", "String", "Buffer")}
        self.sorts |= {"i64": z3.IntSort(), "Bool": z3.BoolSort()}
        signatures = {**FUNCTIONS, **_OWN, **self.base.constructors}
        for name, (columns, result) in signatures.items():
            if {*columns, result} <= self.sorts.keys():
                sorts = [self.sorts[sort] for sort in (*columns, result)]
                self.functions[name] = z3.Function(name, *sorts)
                if name in PARTIAL:
                    deciding = [sorts[i] for i in PARTIAL[name]]
                    self.functions["ok:" + _kin(name)] = z3.Function("ok:" + _kin(name), *deciding, z3.BoolSort())

    def axioms(self) -> list[Any]:
        return [self.closed(form, {}) for form in parse(AXIOMS)]

    def variable(self, name: str, sort: str) -> Any:
        """An unknown of a sort."""
        if sort not in self.sorts:
            raise Unspeakable(f"the sort {sort!r} has no meaning")
        return self.z3.Const(name, self.sorts[sort])

    def closed(self, formula: Expr, scope: Mapping[str, Any]) -> Any:
        """The formula for everything that its variables outside of ``scope`` may be."""
        free = [name for name in unbound(formula) if name not in scope]
        sorts = sorts_in(formula, self.base, _OWN)
        bound = {name: self.variable(name, sorts.get(name, "Tensor")) for name in free}
        body = self.formula(formula, {**scope, **bound})
        return self.z3.ForAll(list(bound.values()), body) if bound else body

    def fact(self, fact: Expr, scope: Mapping[str, Any]) -> Any:
        """What a fact of a body, or an action, says."""
        if isinstance(fact, str):
            return self.defined(fact, scope)
        name, columns = str(fact[0]), fact[1:]
        if name == "union":
            return self.formula(("=", *columns), scope)
        if name in self.base.relations:
            defined = self._all_defined(columns, scope)
            known = name in self.base.meanings
            return self.z3.And(defined, self._meaning(name, columns, scope)) if known else defined
        if name == "!=" and self.term(columns[0], scope).sort() not in (self.sorts["i64"], self.sorts["String"]):
            return self._all_defined(columns, scope)  # two terms that were not found equal yet may be
        return self.defined(fact, scope) if name in self.base.constructors else self.formula(fact, scope)

    def _meaning(self, name: str, columns: Sequence[Expr], scope: Mapping[str, Any]) -> Any:
        meaning = self.base.meanings[name]
        inner = {column: self.term(value, scope) for column, value in zip(meaning.columns, columns, strict=True)}
        return self.closed(meaning.formula, inner)

    def formula(self, formula: Expr, scope: Mapping[str, Any]) -> Any:
        """A formula; equality of terms says that both are defined."""
        z3 = self.z3
        if isinstance(formula, str):
            raise Unspeakable(f"{formula!r} is no formula")
        head, *parts = expanded(formula)
        if head == "false":
            return z3.BoolVal(False)
        if head == "and":
            return z3.And(*(self.formula(part, scope) for part in parts))
        if head == "=>":
            return z3.Implies(self.formula(parts[0], scope), self.formula(parts[1], scope))
        if head == "some":
            bound = {
                name: self.variable(name, sorts_in(parts[1], self.base, _OWN)[name]) for name in variables(parts[0])
            }
            return z3.Exists(list(bound.values()), self.formula(parts[1], {**scope, **bound}))
        if head == "ok":
            return self.defined(parts[0], scope)
        defined = self._all_defined(parts, scope)
        terms = [self.term(part, scope) for part in parts]
        if head == "=":
            if len({term.sort() for term in terms}) > 1:
                raise Unspeakable(f"{show(formula)}: the two sides are of different sorts")
            return z3.And(defined, *(terms[0] == term for term in terms[1:]))
        if head in _COMPARISONS:
            return z3.And(defined, _COMPARISONS[str(head)](*terms))
        if head in self.base.meanings:
            return z3.And(defined, self._meaning(str(head), parts, scope))
        if {**FUNCTIONS, **_OWN}.get(str(head), ((), ""))[1] == "Bool":
            return z3.And(defined, self.functions[str(head)](*terms))
        raise Unspeakable(f"{show(formula)} has no meaning")

    def term(self, term: Expr, scope: Mapping[str, Any]) -> Any:
        """A term, whether it is defined or not."""
        if isinstance(term, str):
            if term in scope:
                return scope[term]
            if literal_sort(term) == "i64":
                return self.z3.IntVal(int(term))
            if literal_sort(term) == "String":
                return self.z3.Const("text:" + term, self.sorts["String"])
            raise Unspeakable(f"{term!r} stands for nothing")
        head, *parts = expanded(term)
        terms = [self.term(part, scope) for part in parts]
        if head == "+" and terms[0].sort() == self.sorts["String"]:
            joined = terms.pop()
            while terms:
                joined = self.functions["joined"](terms.pop(), joined)
            return joined
        if head in _ARITHMETIC:
            try:
                return _ARITHMETIC[str(head)](*terms)
            except (TypeError, self.z3.Z3Exception) as error:
                raise Unspeakable(f"{show(term)}: {error}") from error
        if head not in self.functions:
            raise Unspeakable(f"{show(term)} has no meaning")
        try:
            return self.functions[str(head)](*terms)
        except self.z3.Z3Exception as error:
            raise Unspeakable(f"{show(term)}: {error}") from error

    def defined(self, term: Expr, scope: Mapping[str, Any]) -> Any:
        """That every part of the term is defined."""
        if isinstance(term, str):
            return self.z3.BoolVal(True)
        head, *parts = expanded(term)
        conditions = [self.defined(part, scope) for part in parts if isinstance(part, tuple)]
        if head in PARTIAL:
            deciding = [self.term(parts[i], scope) for i in PARTIAL[str(head)]]
            conditions.append(self.functions["ok:" + _kin(str(head))](*deciding))
        return self.z3.And(*conditions)

    def _all_defined(self, terms: Sequence[Expr], scope: Mapping[str, Any]) -> Any:
        return self.z3.And(*(self.defined(term, scope) for term in terms))


def _kin(name: str) -> str:
    """Graphs and their nodes are defined for the same operands."""
    return "graph" if name in ("node", "nodes") else name


def _sum(*terms: Any) -> Any:
    return sum(terms[1:], terms[0])


_ARITHMETIC: dict[str, Callable[..., Any]] = {"+": _sum, "-": operator.sub, "*": operator.mul}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
}

__all__ = ["AXIOMS", "Proof", "Prover", "prove_all"]
