"""How the calls of one body are made alike: ops of one name differ in few of their attributes.

In: the name of an op, what is known of its operands, and the other calls of the body. Out: one draw of it, with some
attributes of another, and with those that the body says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.egraph.attribute_text import read_value
from eqsat_layout.egraph.expressions import Expr, is_variable
from eqsat_layout.errors import Refused
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.soundness.rules.body_searches import is_text
from eqsat_layout.soundness.rules.draws import from_the_other_end
from eqsat_layout.soundness.rules.fitting_parts import Shape, Type
from eqsat_layout.soundness.rules.ops import of_other_lengths, of_other_numbers, of_other_ranks, usual_call
from eqsat_layout.soundness.rules.schema import (
    KEPT,
    LARGEST,
    LARGEST_RANK,
    LONG,
    OpCall,
    drawn,
    random_type,
    takes_operands,
)

_LIKE_ANOTHER = 0.7
"""How often an op has attributes of another of its name."""
_OTHER_ORDER = 0.2
_AS_ELSEWHERE = 0.85
"""How often an op is drawn near to a call of it that can be run: most ranks and dtypes are refused."""
_SCALED = 0.6
"""How often these have other extents."""
_OTHER_RANK = 0.4
"""How often that call is one of another rank, or with another number or length: much is true of one rank, or one
group, or where there are as many keys as queries."""
_AS_AROUND = 0.3
"""How often an operand of which nothing is known is as another term of the body, or has the same elements: what
broadcasts one way or another."""
_UNITS = 0.15
"""How often a tensor of the vocabulary has axes of one element more."""
_DECIDED = 0.3
"""How often an attribute is a number that decides what the rule says."""
_OTHER_DTYPES = 0.3
"""How often some of these are of other dtypes: values where all were found to be indices."""
_TURNED = 0.1
"""How often what has steps goes the other way."""
LONG_ONES = 0.08
"""How often a first operand has a long axis."""
_EMPTIED = 0.5
"""How often an operand has no elements, where there may be such."""
_AS_USUAL = 0.3
"""How often an op of whose operands nothing is known takes those that it takes elsewhere."""


@dataclass(frozen=True)
class BodyClaims:
    """What a body says of one op: ``others`` of its name so far; ``said`` of its attributes, each a value or a
    variable, None for its default; ``told``: what variables are. ``is_silent``: of no op's attributes is anything
    said. ``is_named``: the op is called so by the body, and not by chance. ``around``: types that terms of the
    body have by now."""

    others: Sequence[OpCall]
    said: Sequence[tuple[str, Expr | None]]
    told: Mapping[Expr | None, Any]
    is_silent: bool
    is_named: bool = True
    around: Sequence[TensorType] = ()


class SimilarCalls:
    """Draws calls on tensors of ``shapes`` and ``dtype``, or on those that calls in ``good`` take."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        dtype: str,
        good: Mapping[str, Sequence[OpCall]],
        rng: random.Random,
        numbers: Sequence[Any] = (),
        long: int = LONG,
        long_ones: float = LONG_ONES,
        *,
        may_be_empty: bool = False,
    ):
        """``numbers``: those that decide what the rule says; ``long``: the extent of long axes;
        ``long_ones``: how often there is one; ``may_be_empty``: with tensors of no elements."""
        self._shapes, self._dtype, self._good, self._rng, self._numbers = shapes, dtype, good, rng, numbers
        self._long, self._long_ones, self._may_be_empty = long, long_ones, may_be_empty

    def call(
        self, text: str, known: Sequence[TensorType | None], result: Type | None, body: BodyClaims, *, exact: bool
    ) -> OpCall | None:
        """One draw of an op; where nothing is known, on a tensor of the vocabulary, a small one, or what it takes.

        None where what is drawn has not the attributes that the body says.
        """
        rng = self._rng
        first = known[0] if known else None
        if first is None and isinstance(result, TensorType) and rng.random() < 0.6:
            first = result
        if first is None and body.around and rng.random() < _AS_AROUND:
            first = _rearranged(rng.choice(body.around), rng)
        usual = usual_call(text) if body.is_named and rng.random() < _AS_ELSEWHERE else None
        if usual is not None and rng.random() < _OTHER_RANK:
            ways = (of_other_ranks, of_other_numbers, *([of_other_lengths] if of_other_lengths(text) else []))
            usual = rng.choice([usual, *rng.choice(ways)(text)])
        if usual is not None and exact and len(usual.operands) != len(known) and takes_operands(text, len(known)):
            usual = usual_call(text, len(known)) or usual
        if usual is not None and rng.random() < 0.5:
            usual = rng.choice(self._good.get(text) or [usual])
        if first is None:
            if usual is not None and None not in known and rng.random() < 0.3 and body.is_silent:
                return usual
            first = self._first(usual)
            if usual is not None and not any(known) and rng.random() < _AS_USUAL and len(usual.operands) == len(known):
                types = _scaled(usual.operands, rng) if rng.random() < _SCALED else list(usual.operands)
                if len(types) > 1 and rng.random() < _OTHER_DTYPES:
                    types = [TensorType(ty.shape, rng.choice((ty.dtype, self._dtype))) for ty in types]
                known, first = types, types[0]
                if len(known) == 1 and first.shape and rng.random() < 0.5:
                    first = _resized(first, self._numbers, rng)
        said = _said(text, body)
        call = drawn(text, [first, *known[1:]], rng, exact=exact, kept={**self._like(usual, body), **said})
        call = self._changed(call, body)
        if self._may_be_empty and rng.random() < _EMPTIED:
            call = self._emptied(call, known)
        return call if all([call.values.get(name)] == [value] for name, value in said.items()) else None  # NaN too

    def _emptied(self, call: OpCall, known: Sequence[TensorType | None]) -> OpCall:
        """The call with an operand of no elements, if one may be of another type than it is."""
        free = [i for i, ty in enumerate(call.operands) if ty.shape and (i >= len(known) or known[i] is None)]
        if not free:
            return call
        types, place = list(call.operands), self._rng.choice(free)
        shape = list(types[place].shape)
        shape[self._rng.randrange(len(shape))] = 0
        alike = [i for i in free if types[i] == types[place]] if self._rng.random() < _EMPTIED else [place]
        for i in alike:
            types[i] = TensorType(tuple(shape), types[i].dtype)
        return drawn(call.name, types, self._rng, exact=True, kept=call.values)

    def _changed(self, call: OpCall, body: BodyClaims) -> OpCall:
        """The call, or one like it with what decides in it, or that goes the other way."""
        rng = self._rng
        decided = self._decided(call, body) if self._numbers and rng.random() < _DECIDED else None
        if decided is not None:
            call = drawn(call.name, call.operands, rng, exact=True, kept=decided)
        turned = from_the_other_end(call.name, call.values)
        if turned is not None and rng.random() < _TURNED:
            call = drawn(call.name, call.operands, rng, exact=True, kept=turned)
        return call

    def _like(self, usual: OpCall | None, body: BodyClaims) -> dict[str, Any]:
        """Some attributes of another op of that name, so that they differ in few."""
        rng = self._rng
        if rng.random() >= _LIKE_ANOTHER:
            return {}
        like = rng.choice(body.others) if body.others else usual
        return {k: _turned(v, rng) for k, v in (like.values if like else {}).items() if rng.random() < KEPT}

    def _decided(self, call: OpCall, body: BodyClaims) -> dict[str, Any] | None:
        """The attributes of a call; one that the body has a variable for is, or holds, a number that decides."""
        free = [name for name, value in body.said if value is not None and is_variable(value) and name in call.values]
        name = self._rng.choice([name for name in free if name not in _said(call.name, body)] or [""])
        value, number = call.values.get(name), self._rng.choice(self._numbers)
        if isinstance(value, list) and value:
            place = self._rng.randrange(len(value))
            value = [number if i == place or self._rng.random() < _DECIDED else one for i, one in enumerate(value)]
        elif type(value) is type(number):
            value = number
        else:
            return None
        return {**call.values, name: value}

    def _first(self, usual: OpCall | None) -> TensorType:
        found = self._short(usual)
        is_long = found.shape and self._rng.random() < self._long_ones
        return _lengthened(found, self._long, self._rng) if is_long else found

    def _short(self, usual: OpCall | None) -> TensorType:
        rng = self._rng
        if usual is None or not usual.operands:
            if rng.random() < 0.7:
                return TensorType(self._thinned(rng.choice(self._shapes)), self._dtype)
            return random_type(rng, (self._dtype,))
        rank = len(usual.operands[0].shape)
        fitting = [shape for shape in self._shapes if len(shape) == rank]
        extent = rng.choice([e for e in (1, 2, 2, 3) if e**rank <= LARGEST])
        options = [
            usual.operands[0].shape,
            self._thickened(usual.operands[0].shape),
            (extent,) * rank,
            *fitting,
            *fitting,
        ]
        return TensorType(rng.choice(options), self._dtype if rng.random() < 0.8 else usual.operands[0].dtype)

    def _thickened(self, shape: Sequence[Any]) -> Shape:
        """The shape with more elements along axes of one: along which of these an op goes would make no difference."""
        thick = tuple(self._rng.choice((2, 3)) if e == 1 else int(e) for e in shape)
        return thick if math.prod(thick) <= LARGEST else tuple(min(2, e) for e in thick)

    def _thinned(self, shape: Shape) -> Shape:
        """The shape; sometimes with axes of one element in the place of others."""
        rng = self._rng
        return tuple(rng.choice((1, e)) for e in shape) if rng.random() < _UNITS else shape


def _said(text: str, body: BodyClaims) -> dict[str, Any]:
    """The attributes that an op must have."""
    found: dict[str, Any] = {}
    defaults = {p.name: p.default for p in parameters(text) or () if not p.is_required}
    for name, value in body.said:
        if value is None:
            found.update({name: defaults[name]} if name in defaults else {})
        elif is_variable(value):
            found.update({name: body.told[value]} if value in body.told else {})
        else:
            found[name] = _plain(str(value))
    return found


def _plain(text: str) -> Any:
    """An attribute as a rule has it: a number, or what text says in Python's way."""
    try:
        return read_value(text[1:-1] if is_text(text) else text)
    except Refused:
        return text


def _scaled(types: Sequence[TensorType], rng: random.Random) -> list[TensorType]:
    """The types with other extents, equal where they were: of ones all axes look alike."""
    extents = {extent: rng.choice((1, 2, 2, 3, 4)) for ty in types for extent in ty.shape}
    shapes = [tuple(extents[extent] for extent in ty.shape) for ty in types]
    fits = all(math.prod(shape) <= LARGEST for shape in shapes)
    return [TensorType(s, ty.dtype) for s, ty in zip(shapes, types, strict=True)] if fits else list(types)


def _resized(ty: TensorType, numbers: Sequence[Any], rng: random.Random) -> TensorType:
    """The type with another extent, perhaps one of the ``numbers``."""
    shape = [int(e) for e in ty.shape]
    extents = [n for n in numbers if isinstance(n, int) and 0 < n <= LARGEST]
    shape[rng.randrange(len(shape))] = rng.choice(extents) if extents and rng.random() < 0.5 else rng.randint(1, 6)
    return TensorType(tuple(shape), ty.dtype) if math.prod(shape) <= LARGEST else ty


def _lengthened(ty: TensorType, extent: int, rng: random.Random) -> TensorType:
    """The type with one long axis; the others have one element."""
    long = rng.randrange(len(ty.shape))
    return TensorType(tuple(extent if axis == long else 1 for axis in range(len(ty.shape))), ty.dtype)


def _rearranged(ty: TensorType, rng: random.Random) -> TensorType:
    """The type; or one with its extents in another order, and axes of one element put in or left out."""
    shape = [int(e) for e in ty.shape]
    if rng.random() < 0.5:
        shape = [e for e in shape if e != 1 or rng.random() < 0.5]
        rng.shuffle(shape)
        if len(shape) < LARGEST_RANK and rng.random() < 0.5:
            shape.insert(rng.randint(0, len(shape)), 1)
    return TensorType(tuple(shape), ty.dtype)


def _turned(value: Any, rng: random.Random) -> Any:
    """The attribute; of a list, sometimes its numbers in another order."""
    return rng.sample(value, len(value)) if isinstance(value, list) and rng.random() < _OTHER_ORDER else value
