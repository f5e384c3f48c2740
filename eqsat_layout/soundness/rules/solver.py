"""Types of the terms of one body, solved for.

In: which terms are of one type, and what ops there are. Out: :data:`Instance`: calls, views, pads and crops for the op
variables of the body, such that its terms are well typed. Ops are drawn one after the other, over what is known of
their operands by then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_layout.egraph.attribute_text import shown
from eqsat_layout.egraph.expressions import Expr, is_variable, unquoted
from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.graph.part_calls import PartCall, part_calls
from eqsat_layout.soundness.rules.call_search import nearer_type
from eqsat_layout.soundness.rules.draws import COMPUTED, DTYPES
from eqsat_layout.soundness.rules.fitting_parts import KINDS, FittingParts, MisfitError, Shape, Type, taken
from eqsat_layout.soundness.rules.known_ops import layout_part_of, unusable
from eqsat_layout.soundness.rules.promising import Promise
from eqsat_layout.soundness.rules.schema import (
    LONG,
    LONGEST,
    OpCall,
    all_ops,
    drawn,
    has_attributes,
    is_empty,
    takes_operands,
)
from eqsat_layout.soundness.rules.similar_calls import LONG_ONES, BodyClaims, SimilarCalls
from eqsat_layout.soundness.rules.term_types import AppliedTerm, TermTypes

Instance = Mapping[str, OpCall | Part]
"""By the op variables of a body."""

_OF_ONE = 60
"""Calls drawn for one op before everything is begun anew."""
_OF_MANY = 15
"""The same for one whose name is drawn too."""
_OF_VAIN = 5
"""The same where all were refused before."""
_ALIKE = 6
"""Times one call is drawn and refused, before nothing else is expected: much of it may be given."""
_AS_PART = 0.7
"""How often an op is a view, a pad or a crop, where some of these are called so."""
_AS_TOLD = 0.4
"""The same where the body says some of their attributes."""
_UNLIKE_CLAIMED = 0.5
"""How often nothing is made of what the rule makes."""
_OF_ANY = 100
"""Ops tried where the body names none."""


class Solver:
    """Draws ops for one body until ``draws`` are used up."""

    def __init__(
        self,
        types: TermTypes,
        shapes: Sequence[Shape],
        parts: FittingParts,
        rng: random.Random,
        draws: int,
        good: Mapping[str, Sequence[OpCall]],
        chosen: Counter[str],
        promise: Promise | None = None,
        *,
        is_long: bool = False,
        may_be_empty: bool = False,
    ):
        """``chosen``: how often names were, for ops of which the body says only that they are of one name;
        ``promise``: what the rule asks besides; ``is_long``: on the longest axes only; ``may_be_empty``: with
        tensors of no elements."""
        self._promise, self._numbers = promise, () if promise is None else promise.numbers
        self._nodes, self._shapes, self._parts, self._good = types, shapes, parts, good
        self._rng, self.draws = rng, draws
        self._chosen = chosen
        said = {str(value).strip("\"'") for of_one in types.attributes.values() for _, value in of_one}
        self._dtypes = [*DTYPES, *(dtype for dtype in COMPUTED[len(DTYPES) :] if dtype in said)]
        self._long = LONGEST if is_long or "float16" in said else LONG
        self._long_ones = 1.0 if is_long else LONG_ONES
        self._may_be_empty = may_be_empty
        self._failures = Counter[str]()
        self._vain = set[str]()

    def solve(self) -> Instance | None:
        """One instance, or None if the draws are used up."""
        while self.draws > 0:
            self._types: dict[int, Type] = {}
            self._lists: dict[str, tuple[TensorType, ...]] = {}
            self._calls: dict[str, OpCall | Part] = {}
            self._places: dict[str, int] = {}
            self._told: dict[Expr | None, Any] = {}
            self._named = {**self._nodes.named, **self._drawn_names()}
            self._dtype = "float32" if self._rng.random() < 0.6 else self._rng.choice(self._dtypes)
            self._alike = SimilarCalls(
                self._shapes,
                self._dtype,
                self._good,
                self._rng,
                self._numbers,
                self._long,
                self._long_ones,
                may_be_empty=self._may_be_empty,
            )
            self.draws -= 1
            try:
                for node, ty in self._nodes.called:
                    self._set(node, ty)
                self._solve()
            except MisfitError:
                self._chosen.update(name for key, name in self._named.items() if key not in self._nodes.named)
                continue
            return self._calls
        return None

    @property
    def told(self) -> dict[str, Any]:
        """The attributes that the body has variables for, in the last instance: as TVM has them."""
        found: dict[str, Any] = {}
        for key, said in self._nodes.attributes.items():
            names = [(name, value) for name, value in said if isinstance(value, str) and is_variable(value)]
            call = self._calls.get(key)
            if names and isinstance(call, OpCall):
                known = call.attributes_told
                found.update((value, known[name]) for name, value in names if name in known)
        return found

    @property
    def types(self) -> Mapping[str, Type]:
        """The types of the terms that it has variables for."""
        known = {name: self._types.get(self._nodes.root(node)) for name, node in self._nodes.variables.items()}
        return {name: ty for name, ty in known.items() if ty is not None}

    def _solve(self) -> None:
        waiting = [a for a in self._nodes.applied if a.key in self._named]
        unnamed = [a for a in self._nodes.applied if a.key not in self._named]
        while waiting:
            self._take_parts()
            self._take_claims()
            applied = max(waiting, key=self._haste)
            waiting.remove(applied)
            known = self._calls.get(applied.key) or self._drawn(applied)
            self._calls[applied.key] = known
            self._note(applied, *_types_of(known, self._operands(applied)[:1], self._dtype))
        self._take_parts()
        for applied in unnamed:
            self._any_op(applied)

    def _drawn_names(self) -> dict[str, str]:
        """Names for ops that are of one name, whichever that is: some op of so many operands."""
        found: dict[str, str] = {}
        for keys in self._nodes.alike:
            counts = {len(a.operands) for a in self._nodes.applied if a.key in keys}
            options = [name for name in all_ops() if any(takes_operands(name, count) for count in counts)]
            if options and not any(key in self._nodes.named for key in keys):
                name = min(options, key=lambda name: (self._chosen[name], self._rng.random()))
                self._chosen[name] += 1 if has_attributes(name) else 2  # without any, most are of one element each
                found.update(dict.fromkeys(keys, name))
        return found

    def _haste(self, applied: AppliedTerm) -> tuple[bool, float, float]:
        """How soon an op is drawn: those that failed most come first, as they leave least choice to others."""
        hard = self._failures[applied.key] * self._rng.random()
        return applied.key in self._calls, self._known(applied) + hard, self._rng.random()

    def _known(self, applied: AppliedTerm) -> float:
        """How much is known of its types."""
        roots = [self._nodes.root(node) for node in (*applied.operands, applied.result)]
        return sum(root in self._types for root in roots) / len(roots) + (applied.rest in self._lists)

    def _take_parts(self) -> None:
        """Types of the results of ops that have several."""
        for index, whole, one in self._nodes.gets:
            fields = self._types.get(self._nodes.root(whole))
            if isinstance(fields, tuple):
                at = self._rng.randrange(len(fields)) if is_variable(index) else int(str(index))
                if not 0 <= at < len(fields):
                    raise MisfitError
                if not is_variable(index) or self._nodes.root(one) not in self._types:
                    self._set(one, fields[at])

    def _take_claims(self) -> None:
        """Often what the rule makes in the place of a tensor is of that tensor's type."""
        if self._promise is None or self._rng.random() < _UNLIKE_CLAIMED:
            return
        for name, ty in self._promise.claimed(self.told, self.types):
            if name in self._nodes.variables:
                self._set(self._nodes.variables[name], ty)

    def _set(self, node: int, ty: Type) -> None:
        root = self._nodes.root(node)
        if self._types.setdefault(root, ty) != ty:
            raise MisfitError

    def _note(self, applied: AppliedTerm, operands: Sequence[TensorType], result: Type) -> None:
        count = len(applied.operands)
        if len(operands) < count or (not applied.rest and len(operands) != count):
            raise MisfitError
        for node, ty in zip(applied.operands, operands, strict=False):
            self._set(node, ty)
        if applied.rest and self._lists.setdefault(applied.rest, tuple(operands[count:])) != tuple(operands[count:]):
            raise MisfitError
        for index, node in self._nodes.items.get(applied.rest, ()):
            if self._place(index) >= len(operands) - count:
                raise MisfitError
            self._set(node, operands[count + self._place(index)])
        self._set(applied.result, result)

    def _operands(self, applied: AppliedTerm) -> list[TensorType | None]:
        """The types of the operands, as far as they are known."""
        types = [self._types.get(self._nodes.root(node)) for node in applied.operands]
        if any(isinstance(ty, tuple) for ty in types):
            raise MisfitError
        rest = self._lists.get(applied.rest)
        return [
            *(ty for ty in types if not isinstance(ty, tuple)),
            *(self._items(applied.rest) if rest is None else rest),
        ]

    def _items(self, name: str) -> list[TensorType | None]:
        """What is known of the operands in a list."""
        found: dict[int, TensorType] = {}
        for index, node in self._nodes.items.get(name, ()):
            ty = self._types.get(self._nodes.root(node))
            if isinstance(ty, TensorType):
                found[self._place(index)] = ty
        return [found.get(i) for i in range(max(found, default=-1) + 1)]

    def _place(self, index: Expr) -> int:
        """An index into a list; one that is a variable is drawn once."""
        if not is_variable(index):
            return int(str(index))
        return self._places.setdefault(str(index), self._rng.choice((0, 0, 1, 1, 2)))

    def _drawn(self, applied: AppliedTerm) -> OpCall | Part:
        text = self._named[applied.key]
        operands = self._operands(applied)
        result = self._types.get(self._nodes.root(applied.result))
        said = self._nodes.attributes.get(applied.key, ())
        types = (*operands, *(result if isinstance(result, tuple) else (result,)))
        is_part = self._parts.has(text) and not any(ty is not None and is_empty(ty) for ty in types)
        if text in KINDS or (is_part and not self._decides(said) and self._rng.random() < _AS_PART):
            return self._parts.part(text, operands, result)
        if parameters(text) is None:
            raise MisfitError
        told_part = self._told_part(text, operands, result, said) if is_part and self._rng.random() < _AS_TOLD else None
        if told_part is not None:
            return told_part
        body = BodyClaims(
            [c for c in self._calls.values() if isinstance(c, OpCall) and c.name == text],
            said,
            self._told,
            is_silent=not self._nodes.attributes,
            is_named=applied.key in self._nodes.named,
            around=[ty for ty in self._types.values() if isinstance(ty, TensorType)],
        )
        exact = not applied.rest or applied.rest in self._lists
        place = (text, tuple(operands), result, tuple((name, self._told.get(value, value)) for name, value in said))
        refused, near = Counter[OpCall](), None
        for _ in range(_OF_VAIN if str(place) in self._vain else _OF_ONE if body.is_named else _OF_MANY):
            self.draws -= 1
            if self.draws <= 0:
                raise MisfitError
            call = self._nearer(near, operands) or self._alike.call(text, operands, result, body, exact=exact)
            if call is None:
                continue
            is_typed = self._is_typed(call)
            part = layout_part_of(call) if is_part and is_typed else None
            is_told = part is None or _is_told_as(part, text, said)
            if not is_told and not unusable(call):  # an op where sizes are not known, with what was written
                part, is_told = None, True
            if is_typed and is_told and self._agrees(applied, call, result):
                self._told.update({value: call.values[name] for name, value in said if name in call.values})
                return part or call
            refused[call] += 1
            if refused[call] > _ALIKE:
                break
            near = near if is_typed else call
        self._vain.add(str(place))
        self._failures[applied.key] += 1
        raise MisfitError

    def _told_part(
        self,
        text: str,
        operands: Sequence[TensorType | None],
        result: Type | None,
        said: Sequence[tuple[str, Expr | None]],
    ) -> Part | None:
        """A view, pad or crop of which rules are told what the body says of its attributes, if one is soon found: a
        pad that is drawn as a call has one axis, as lists that are twice as long as a shape are seldom drawn."""
        if any(value in self._told for _, value in said if value is not None and is_variable(value)):
            return None
        for _ in range(_OF_VAIN):
            try:
                part = self._parts.part(text, operands, result)
            except MisfitError:
                return None
            told = next((call for call in part_calls(part) if call.name == text), None)
            if told is not None and _is_told_as(part, text, said):
                self._told.update({value: told.attributes[name] for name, value in said if name in told.attributes})
                return part
        return None

    def _nearer(self, call: OpCall | None, known: Sequence[TensorType | None]) -> OpCall | None:
        """A call like one that was refused, with another type for an operand of which nothing is known: perhaps the
        one that TVM asks for."""
        if call is None or self._rng.random() < 0.5:
            return None
        free = [i for i in range(len(call.operands)) if i >= len(known) or known[i] is None]
        if not free:
            return None
        types, place = list(call.operands), self._rng.choice(free)
        types[place] = nearer_type(types[place], types, call.refusal, self._rng)
        return drawn(call.name, types, self._rng, exact=True, kept=call.values)

    def _decides(self, said: Sequence[tuple[str, Expr | None]]) -> bool:
        """Whether what a body says of attributes leaves some out."""
        return any(value is None or not is_variable(value) or value in self._told for _, value in said)

    def _any_op(self, applied: AppliedTerm) -> None:
        """Some op for a variable that any op may be; only where operands of several types are known.

        Others are found among the ops that every vocabulary has.
        """
        operands = self._operands(applied)
        result = self._types.get(self._nodes.root(applied.result))
        if applied.key in self._calls or applied.rest or None in operands or len(set(operands)) < 2:
            return
        for _ in range(_OF_ANY):
            call = drawn(self._rng.choice(all_ops()), operands, self._rng, exact=True)
            if call.operands == tuple(operands) and self._is_typed(call) and result in (None, call.made):
                self._calls[applied.key] = call
                return

    def _is_typed(self, call: OpCall) -> bool:
        """Whether type inference takes a call; of one that holds nothing, only where such are looked for."""
        return call.made is not None and (self._may_be_empty or not call.holds_nothing)

    def _agrees(self, applied: AppliedTerm, call: OpCall, result: Type | None) -> bool:
        """Whether a call gives what is wanted, and is of one type where the body says so."""
        if (result is not None and call.made != result) or not self._parts_agree(applied, call.made):
            return False
        types = dict(zip(map(self._nodes.root, applied.operands), call.operands, strict=False))
        if any(types[self._nodes.root(n)] != ty for n, ty in zip(applied.operands, call.operands, strict=False)):
            return False
        return types.get(self._nodes.root(applied.result), call.made) == call.made

    def _parts_agree(self, applied: AppliedTerm, made: Type | None) -> bool:
        """Whether the results of an op that has several are of the types that are known of them."""
        for index, whole, one in self._nodes.gets:
            known = self._types.get(self._nodes.root(one))
            if known is None or is_variable(index) or self._nodes.root(whole) != self._nodes.root(applied.result):
                continue
            if not isinstance(made, tuple) or int(str(index)) >= len(made) or made[int(str(index))] != known:
                return False
        return True


def _is_told_as(part: Part, name: str, said: Sequence[tuple[str, Expr | None]]) -> bool:
    """Whether rules are told of a view, pad or crop what the body says: it has one way to be said, whatever the call
    that it was had."""
    calls = (call for call in part_calls(part) if call.name == name)
    return any(all(_has(call, attribute, value) for attribute, value in said) for call in calls)


def _has(call: PartCall, attribute: str, value: Expr | None) -> bool:
    if value is None:
        return attribute in call.defaults
    return is_variable(value) or shown(call.attributes.get(attribute)) == unquoted(str(value))


def _types_of(
    known: OpCall | Part, operands: Sequence[TensorType | None], dtype: str
) -> tuple[Sequence[TensorType], Type]:
    """The types of operands and result; a view, pad or crop is of the dtype that its operand is."""
    if isinstance(known, OpCall):
        assert known.made is not None
        return known.operands, known.made
    given = operands[0] if operands else None
    dtype = dtype if given is None else given.dtype
    return [TensorType(taken(known), dtype)], TensorType(tuple(known.result_shape), dtype)
