"""Terms as rules look for them, so that rules for special ops find something in random models.

In: what the body of a rule looks for. Out: its terms, over random tensors of a model. Ops are chosen by name and by
type, from the outermost to the operands; one that does not fit is given up for another, within a budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat_layout.egraph.expressions import Expr, arguments_of, is_variable, show, variables
from eqsat_layout.soundness.rules.bits import WORLDS
from eqsat_layout.soundness.rules.body_searches import BodySearch
from eqsat_layout.soundness.rules.fitting_parts import MisfitError
from eqsat_layout.soundness.rules.forgotten import forgotten_operand
from eqsat_layout.soundness.rules.ill_typed import IllTypedError
from eqsat_layout.soundness.rules.model import RuleModel
from eqsat_layout.soundness.rules.values import taken_shape

BUDGET = 120
"""Ops that are tried for one body."""
CONSTANTS = 3
"""Constants that there are of a type, where one is looked for."""
OPTIONS = 12
"""Ops that are tried in one place."""

Type = tuple[tuple[Any, ...], str]
"""Shape and dtype."""


@dataclass
class Pattern:
    """The terms of one body, built once; ``fresh``: how often an operand that may be any is a new tensor."""

    model: RuleModel
    sought: BodySearch
    scope: dict[str, Any] = field(default_factory=dict)
    fresh: float = 0.0
    tried: int = 0
    has_apart: bool = False
    """Whether constants were made that no term has as an operand."""

    def build(self) -> bool:
        """Adds the terms to the model; False where names and types leave no way that was found."""
        waiting = [(a, b) for a, b in self.sought.equations if isinstance(b, tuple)]
        definitions: dict[str, list[Expr]] = {}
        for a, b in waiting:
            if isinstance(a, str):
                definitions.setdefault(a, []).append(b)
        self._definitions = definitions
        self._options: dict[str, list[str]] = {}
        for key, text in self.sought.named:
            known = self._options.get(key, self._all_names())
            self._options[key] = [k for k in known if self.model.values.is_named(k, text)]
        try:
            inner = {v for a, b in waiting for v in variables(b)} | {
                v for _, _, x in self.sought.items for v in [str(x)]
            }
            for a, b in sorted(waiting, key=lambda equation: equation[0] in inner):
                if isinstance(a, str):
                    self._tensor(a, None)
                else:
                    self._tensor(b, self._type(self._tensor(a, None)))
            for _, _, x in self.sought.items:
                self._tensor(x, None)
            for name, number in self.sought.held:
                if is_variable(name) and name not in self.scope:  # what the rule makes something of
                    self.scope[name] = self._filled(number, ((), self._dtype()))
                    self.has_apart = True
        except (MisfitError, IllTypedError):
            return False
        return True

    @property
    def tensors(self) -> tuple[int, ...]:
        """Those that variables stand for by now."""
        names = {str(v) for a, b in self.sought.equations for v in (a, *_operands_in(b)) if is_variable(v)}
        names |= {name for name, _ in self.sought.held}
        return tuple(n for name, n in self.scope.items() if name in names and isinstance(n, int))

    def _all_names(self) -> list[str]:
        return [*self.model.values.parts, *self.model.vocabulary.signatures]

    def _type(self, number: int) -> Type | None:
        value = self.model.values.tensors[number]
        return None if isinstance(value, tuple) else (value.shape[1:], str(value.dtype))

    def _dtype(self) -> str:
        """The dtype of one of the tensors that were found."""
        found = [self._type(number) for number in self.scope.values() if isinstance(number, int)]
        return self.model.rng.choice([ty[1] for ty in found if ty is not None] or ["float32"])

    def _tensor(self, term: Expr, want: Type | None) -> int:
        number = self._variable(term, want) if isinstance(term, str) else self._made(term, want)
        if want is not None and self._type(number) != want:
            raise MisfitError
        return number

    def _variable(self, name: str, want: Type | None) -> int:
        known = self.scope.get(name)
        if known is None:
            definitions = self._definitions.get(name)
            if definitions:
                waiting = list(definitions)
                definitions.clear()
                try:
                    known = self._tensor(waiting[0], want)
                    self.scope[name] = known
                    for other in waiting[1:]:
                        if not self._is_made_so(other, known):
                            self._tensor(other, self._type(known))
                finally:
                    if name not in self.scope:
                        definitions += waiting
            else:
                number = dict(self.sought.held).get(name)
                known = self._any(want) if number is None else self._filled(number, want)
            self.scope[name] = known
        return int(known)

    def _is_made_so(self, term: Expr, number: int) -> bool:
        """Makes a tensor, which is some op's result already, of other operands too: two terms are seldom equal by
        chance."""
        if not isinstance(term, tuple) or term[0] not in ("Op", "at"):
            return False
        terms, rest = arguments_of(term[2] if term[0] == "Op" else ("Arg", term[2], ("End",)))
        key = str(term[1])
        for name, operands in self.model.values.makers(number):
            known = self.scope.get(key)
            if name not in ([known] if known is not None else self._options.get(key, [name])):
                continue
            scope = self._with_other_operand(name, terms, rest, operands)
            if scope is not None:
                self.scope |= {**scope, key: name}
                return True
        return False

    def _with_other_operand(
        self, name: str, terms: Sequence[Expr], rest: Expr, operands: tuple[int, ...]
    ) -> dict[str, Any] | None:
        """What the names of operands stand for where one that stands for nothing yet is another tensor than here."""
        count = len(terms)
        names = [term for term in terms if isinstance(term, str)]
        if len(set(names)) < count or count > len(operands) or (not isinstance(rest, str) and count < len(operands)):
            return None
        wanted: dict[str, Any] = dict(zip(names, operands, strict=False))
        wanted |= {rest: operands[count:]} if isinstance(rest, str) else {}
        if any(self.scope.get(term, number) != number for term, number in wanted.items()):
            return None
        free = [i for i, term in enumerate(names) if term not in self.scope and not self._definitions.get(term)]
        free += range(count, len(operands)) if isinstance(rest, str) and rest not in self.scope else ()
        if not free:
            return None
        place = self.model.rng.choice(free)
        other = forgotten_operand(self.model, name, operands, place)
        if other is None:
            return None
        operands = (*operands[:place], self.model.leaf(other), *operands[place + 1 :])
        self.model.apply(name, operands)
        wanted = dict(zip(names, operands, strict=False))
        return {**wanted, **({rest: operands[count:]} if isinstance(rest, str) else {})}

    def _any(self, want: Type | None) -> int:
        if want is None:
            return self.model.rng.randrange(len(self.model.values.tensors))
        return self._some(*want)

    def _some(self, shape: tuple[Any, ...], dtype: str) -> int:
        """A tensor of a type; one with an empty dtype is of any."""
        found = None if self.model.rng.random() < self.fresh else self.model.of_shape(shape, dtype)
        if found is None and not self.fresh:
            raise MisfitError
        return self.model.draw_leaf(shape, dtype or "float32") if found is None else found

    def _filled(self, number: str, want: Type | None) -> int:
        """A tensor that holds a number everywhere."""
        shape, dtype = want or (self.model.vocabulary.shape, "float32")
        try:
            array = np.full((WORLDS, *map(int, shape)), float(number)).astype(dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise MisfitError from error
        found = self.model.leaf(array)
        if self.model.values.uniform(found) != number:
            raise MisfitError  # the dtype has no such number
        return found

    def _made(self, term: tuple[Expr, ...], want: Type | None) -> int:
        head, *parts = term
        model = self.model
        if head == "at":
            return self._op(parts[0], ("Arg", parts[1], ("End",)), want)
        if head == "Op":
            return self._op(parts[0], parts[1], want)
        if head == "Get":
            number = self._tensor(parts[1], None)
            fields = model.values.tensors[number]
            if not isinstance(fields, tuple):
                raise MisfitError
            name = str(parts[0])
            if is_variable(name):
                self.scope.setdefault(name, model.rng.randrange(len(fields)))
            return model.values.get(int(self.scope.get(name, parts[0])), number)
        if head == "Const" and is_variable(parts[0]) and parts[0] not in self.scope:
            fitting = [h for h, c in model.values.constants.items() if want in (None, self._type(c))]
            if want is not None and len(fitting) < CONSTANTS:
                fitting.append(model.draw_constant(*want))
            if not fitting:
                raise MisfitError
            self.scope[str(parts[0])] = model.rng.choice(fitting)
        if head == "window":
            return self._any(want)
        return int(model.evaluator.term(term, self.scope))

    def _op(self, key: Expr, operands: Expr, want: Type | None) -> int:
        name = str(key)
        operands = self._with_named_rest(operands)
        known = self.scope.get(name)
        options = [known] if known is not None else self._options.get(name) or self._alike(name)
        count, exact = _length(operands)
        for option in self.model.rng.sample(options, min(len(options), OPTIONS * 4)):
            takes = self.model.takes(option)
            if takes is None or (len(takes) != count and (exact or len(takes) < count)):
                continue
            if want is not None and not self._may_give(option, want):
                continue
            self.tried += 1
            if self.tried > BUDGET:
                raise MisfitError
            scope, self.scope[name] = dict(self.scope), option
            try:
                if option in self.model.values.parts and want is not None:
                    takes = [(takes[0][0], want[1])]
                made = self.model.try_apply(option, self._operands(operands, takes))
                if made is not None and want in (None, self._type(made)):
                    return made
            except (MisfitError, IllTypedError):
                pass
            self.scope = scope
        raise MisfitError

    def _alike(self, name: str) -> list[str]:
        """Ops of the name that another has, where the body says so; all others."""
        others = [self.scope[o] for keys in self.sought.alike if name in keys for o in keys if o in self.scope]
        signatures = self.model.values.signatures
        if not others or others[0] not in signatures:
            return self._all_names()
        return [k for k in self._all_names() if self.model.values.is_named(k, signatures[others[0]].rule_name)]

    def _may_give(self, key: str, want: Type) -> bool:
        part = self.model.values.parts.get(key)
        if part is not None:
            return bool(tuple(part.result_shape) == want[0])
        results = self.model.vocabulary.signatures[key].results
        return len(results) == 1 and results[0] is not None and (results[0].shape, results[0].dtype) == want

    def _operands(self, operands: Expr, takes: Sequence[Type]) -> tuple[int, ...]:
        """Operands of these types; those that are terms first, since they leave less choice."""
        terms, operands = arguments_of(operands)
        chosen: dict[int, int] = {}
        for i in sorted(range(len(terms)), key=lambda i: isinstance(terms[i], str)):
            chosen[i] = self._operand(terms[i], takes[i])
        if isinstance(operands, str):
            rest = self.scope.get(operands)
            if rest is None:
                rest = self._rest(operands, takes[len(terms) :])
                self.scope[operands] = rest
            return (*(chosen[i] for i in range(len(terms))), *rest)
        return tuple(chosen[i] for i in range(len(terms)))

    def _operand(self, term: Expr, taken: Type) -> int:
        if taken[1]:
            return self._tensor(term, taken)
        if isinstance(term, str) and term not in self.scope and not self._definitions.get(term):  # of any dtype
            self.scope[term] = self._some(*taken)
            return int(self.scope[term])
        wanted = None if isinstance(term, str) and term in self.scope else (taken[0], self._dtype_given(term, taken[0]))
        number = self._tensor(term, wanted)
        if not self.model.is_of(number, taken[0]):
            raise MisfitError
        return number

    def _dtype_given(self, term: Expr, shape: tuple[Any, ...]) -> str:
        """The dtype that a term is of: what takes any would be of float32 only, and bytes were never in a border."""
        if isinstance(term, str):
            definitions = self._definitions.get(term)
            return self._dtype_given(definitions[0], shape) if definitions else "float32"
        if term[0] not in ("Op", "at"):
            return "float32"
        key, signatures = str(term[1]), self.model.vocabulary.signatures
        chosen = self.scope.get(key)
        part = self.model.values.parts.get(str(chosen))
        if part is not None:
            operand = term[2] if term[0] == "at" else next(iter(arguments_of(term[2])[0]), "")
            return self._dtype_given(operand, taken_shape(part))
        options = [chosen] if chosen is not None else self._options.get(key, ())
        made = [s.results[0] for k in options if (s := signatures.get(k)) is not None and len(s.results) == 1]
        dtypes = dict.fromkeys(ty.dtype for ty in made if ty is not None and ty.shape == shape)
        return self.model.rng.choice(list(dtypes)) if dtypes and "float32" not in dtypes else "float32"

    def _with_named_rest(self, operands: Expr) -> Expr:
        """The list with a name for a rest that follows from what is known, such as the constants of some names."""
        terms, rest = arguments_of(operands)
        if isinstance(rest, str) or rest == ("End",):
            return operands
        if not variables(rest).keys() <= self.scope.keys():
            raise MisfitError
        named: Expr = show(rest)
        self.scope[str(named)] = self.model.evaluator.term(rest, self.scope)
        for term in reversed(terms):
            named = ("Arg", term, named)
        return named

    def _rest(self, name: str, takes: Sequence[Type]) -> tuple[int, ...]:
        """An operand list, with the tensors in it that the body says are in it."""
        found: dict[int, int] = {}
        for listed, index, x in self.sought.items:
            if listed != name or not takes:
                continue
            if is_variable(index):
                self.scope.setdefault(str(index), self.model.rng.randrange(len(takes)))
            at = int(self.scope.get(str(index), index if not is_variable(index) else 0))
            if not 0 <= at < len(takes):
                raise MisfitError
            found[at] = self._operand(x, takes[at])
        return tuple(found[i] if i in found else self._some(*taken) for i, taken in enumerate(takes))


def _operands_in(term: Expr) -> Iterator[Expr]:
    """What stands in operand lists, at any depth."""
    if isinstance(term, tuple):
        yield from term[1:2] if term[0] == "Arg" else term[2:3] if term[0] in ("at", "Get") else ()
        for part in term[1:]:
            yield from _operands_in(part)


def _length(operands: Expr) -> tuple[int, bool]:
    """How many operands a pattern of a list has at least, and whether these are all."""
    terms, rest = arguments_of(operands)
    return len(terms), isinstance(rest, tuple)
