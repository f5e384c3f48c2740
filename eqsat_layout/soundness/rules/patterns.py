"""Terms as rules look for them, so that rules for special ops find something in random models.

In: the body of a rule. Out: its terms, over random tensors of a model, as far as names and types allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_layout.egraph.expressions import Expr, is_variable, substitute
from eqsat_layout.soundness.rules.model import Model
from eqsat_layout.soundness.rules.terms import IllTypedError


@dataclass
class Pattern:
    """The terms of one body, built from the leaves up."""

    model: Model
    body: Sequence[Expr]
    scope: dict[str, Any] = field(default_factory=dict)

    def build(self) -> None:
        """Adds the terms to the model, as far as names and types allow."""
        said = [formula for fact in self.body for formula in self._said(fact)]
        named = [formula for formula in said if formula[0] == "named"]
        for _, key, text in named:
            if is_variable(key) and str(text).startswith('"'):
                options = [k for k in self._all_names() if self.model.values.is_named(k, str(text)[1:-1])]
                if not options:
                    return
                self.scope[str(key)] = self.model.rng.choice(options)
        equations = [f for f in said if f[0] == "=" and isinstance(f[1], str) and isinstance(f[2], tuple)]
        waiting = list(equations)
        for _ in equations:
            for fact in list(waiting):
                inner = [g[1] for g in waiting if g is not fact]
                if not any(v in inner for v in _tensor_variables(fact[2])):
                    waiting.remove(fact)
                    try:
                        self.scope[str(fact[1])] = self._value(fact[2])
                    except IllTypedError:
                        return

    def _said(self, fact: Expr) -> Iterator[tuple[Expr, ...]]:
        """What a fact says, by its meaning, as far as that is a conjunction."""
        if isinstance(fact, str):
            return
        head, *columns = fact
        meaning = self.model.base.meanings.get(str(head))
        if meaning is not None:
            yield from self._said(substitute(meaning.formula, dict(zip(meaning.columns, columns, strict=False))))
        elif head == "and":
            for part in columns:
                yield from self._said(part)
        elif head in ("=", "named"):
            yield fact

    def _all_names(self) -> list[str]:
        return [*self.model.values.parts, *self.model.vocabulary.signatures]

    def _fitting(self, operands: Expr) -> list[str]:
        """Ops of as many operands as the pattern has."""
        count, rest = 0, operands
        while isinstance(rest, tuple) and rest[0] == "Arg":
            count, rest = count + 1, rest[2]
        exact = isinstance(rest, tuple)
        signatures = self.model.vocabulary.signatures
        arity = {**dict.fromkeys(self.model.values.parts, 1), **{k: len(s.operands) for k, s in signatures.items()}}
        fitting = [k for k, n in arity.items() if n == count or (n > count and not exact)]
        return fitting or self._all_names()

    def _value(self, term: Expr) -> Any:
        model = self.model
        if isinstance(term, str):
            return self.model.evaluator.term(term, self.scope)
        head, *parts = term
        if head == "at":
            return self._value(("Op", parts[0], ("Arg", parts[1], ("End",))))
        if head == "Const" and is_variable(parts[0]):
            self.scope.setdefault(str(parts[0]), model.rng.choice(list(model.values.constants)))
        if head != "Op":
            return model.evaluator.term(term, self.scope)
        name = str(parts[0])
        key = self.scope.get(name) or self.scope.setdefault(name, model.rng.choice(self._fitting(parts[1])))
        operands = model.operands_for(key) or ()
        chosen: list[int] = []
        rest: Expr = parts[1]
        for operand in operands:
            if isinstance(rest, str) or rest[0] != "Arg":
                break
            x = rest[1]
            if isinstance(x, str) and x not in self.scope:
                self.scope[x] = operand
            chosen.append(self._value(x))
            rest = rest[2]
        if isinstance(rest, str):
            self.scope.setdefault(rest, tuple(operands[len(chosen) :]))
            chosen += self.scope[rest]
        return model.apply(key, tuple(chosen))


def _tensor_variables(term: Expr) -> Iterator[str]:
    if isinstance(term, tuple):
        for part in term[1:]:
            yield from [part] if isinstance(part, str) else _tensor_variables(part)
