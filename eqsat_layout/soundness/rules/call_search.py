"""A search for calls that are wanted but seldom drawn.

In: the name of an op, and which calls are wanted. Out: one that is. A call that is refused for a reason that was not
seen before is nearer than what came before it, and is changed in one place next; numbers in the reason (ranks, extents
that it asks for) are tried. So nothing is known here of any op.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.soundness.rules.draws import DTYPES
from eqsat_layout.soundness.rules.schema import LARGEST, OpCall, drawn, random_type

STEPS = 4000
"""Calls that are drawn."""
LOOKS = 300
"""Calls of these that type inference takes."""
ALIKE = 60
"""Calls that are unwanted for the one reason that all have, before none is expected to be wanted."""
_ANEW = 0.15
"""How often one begins with something else."""
_REPLACED = 0.3
"""How often another call takes the place of one that was refused for the same reason."""
_ONWARDS = 2
"""What is changed is the newest of so many that are picked."""
_EXTENTS = (1, 2, 3, 4, 6)

_WORD = re.compile(r"\b[A-Za-z]\w*\b")
_NUMBER = re.compile(r"\d+")
_PRINTED = re.compile(r"[\[(][^\[\]()]*[\])]|\bT\.\w+|\b(?:u?int|float|bool)\d*\b|-?\d+")
"""What in a reason is about this call: what stands in parentheses, dtypes, numbers."""
_LENGTH = 120
NOTHING = "it holds no elements"


@dataclass
class CallSearch:
    """``calls``: one for each reason for which calls were refused. ``count``: of operands, if it has to be that."""

    name: str
    rng: random.Random
    count: int | None = None
    calls: dict[str, tuple[OpCall, str]] = field(default_factory=dict)
    typed: OpCall | None = None
    """The first that TVM took, wanted or not."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why calls that TVM took were unwanted."""
    illegal: Counter[str] = field(default_factory=Counter)
    """Why those that type inference took were not legalised."""

    @property
    def is_vain(self) -> bool:
        """Whether many were looked at, and all are unwanted for one reason, or are not legalised for one."""
        is_illegal = self.typed is None and len(self.illegal) == 1 and self.illegal.total() >= LOOKS
        return is_illegal or (len(self.reasons) == 1 and self.reasons.total() >= ALIKE)

    def run(self, unwanted: Callable[[OpCall], str], steps: int = STEPS) -> OpCall | None:
        """A call for which ``unwanted`` gives no reason; None if none is found."""
        looked_at = 0
        for _ in range(steps):
            call = self._next()
            why = call.refusal or (NOTHING if call.holds_nothing else "")
            if not why:
                why = unwanted(call)
                looked_at += 1
                self.typed = self.typed or call
                if not why:
                    return call
                self.reasons[_kind(why, call)] += 1
                if looked_at == LOOKS:
                    break
            elif call.made is not None:
                self.illegal[_kind(why, call)] += 1
            if self.is_vain:
                break
            kind = _kind(why, call)
            if kind not in self.calls or self.rng.random() < _REPLACED:
                self.calls[kind] = (call, why)
        return None

    def _next(self) -> OpCall:
        rng = self.rng
        if not self.calls or rng.random() < _ANEW:
            first = random_type(rng, DTYPES[:1] if rng.random() < 0.5 else DTYPES)
            others = [None] * ((self.count or 1) - 1)
            return drawn(self.name, (first, *others), rng, exact=self.count is not None)
        known = list(self.calls.values())
        call, why = known[max(rng.randrange(len(known)) for _ in range(_ONWARDS))]
        types, kept = list(call.operands), dict(call.values)
        if kept and rng.random() < 0.4:
            changed = rng.choice(list(kept))
            value = kept.pop(changed)
            words = _WORD.findall(why)
            if value in words:  # what else it says may be what it asks for: a layout for a layout
                kept[changed] = rng.choice([w for w in words if w != value and w.isupper() == value.isupper()] or words)
        elif types:
            place = rng.randrange(len(types))
            types[place] = nearer_type(types[place], types, why, rng)
        return drawn(self.name, types, rng, exact=True, kept=kept)


def nearer_type(ty: TensorType, types: Sequence[TensorType], why: str, rng: random.Random) -> TensorType:
    """A type that differs in its dtype, its rank or an extent, which may be those that a refusal asks for, or those of
    the other ``types`` of the call."""
    shape = [int(e) for e in ty.shape]
    numbers = [int(n) for n in _NUMBER.findall(why) if int(n) < 100]
    asked = [dtype for dtype in DTYPES if dtype in why]
    extents = [*_EXTENTS, *(n for n in numbers if n), *(int(e) for other in types for e in other.shape)]
    chance = rng.random()
    if chance < 0.25:
        return TensorType(ty.shape, rng.choice(asked or DTYPES))
    if chance < 0.55:
        ranks = [n for n in numbers if n < 7] or range(7)
        shape = [rng.choice(extents) for _ in range(rng.choice(ranks))]
    elif shape:
        shape[rng.randrange(len(shape))] = rng.choice(extents)
    return TensorType(tuple(shape), ty.dtype) if math.prod(shape) <= LARGEST else ty


def _kind(why: str, call: OpCall) -> str:
    """The reason without what is about one call only."""
    for value in call.values.values():
        why = re.sub(rf"\b{re.escape(value)}\b", "", why) if isinstance(value, str) else why
    while (shorter := _PRINTED.sub("", why)) != why:
        why = shorter
    return why[:_LENGTH]
