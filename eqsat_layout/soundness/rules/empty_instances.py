"""Instances with tensors of no elements: of these other things are true than of others.

In: the types of the terms of one body. Out: :data:`Instance` in which operands or results hold nothing. They say little
of all else, and so they come beside others, and count for nothing in what is drawn afterwards.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

from eqsat_layout.soundness.rules.instance_traits import Trait, op_calls_of, unusable_calls
from eqsat_layout.soundness.rules.promising import Promise
from eqsat_layout.soundness.rules.schema import is_empty
from eqsat_layout.soundness.rules.solver import Instance, Solver

EACH, DRAWS = 2, 400
"""Of one body in one vocabulary, and calls drawn for them."""
_CHOICE = 6
"""Times as many are drawn as are taken."""


class EmptyInstances:
    """Those of the bodies of all rules, in one vocabulary after the other."""

    def __init__(self) -> None:
        self._seen: Counter[Trait] = Counter()
        self._in_vain: Counter[str] = Counter()

    def draws(self, key: str) -> int:
        """How many calls are drawn for those of one body: the harder it was, the fewer."""
        return DRAWS // (1 + self._in_vain[key])

    def solved(self, key: str, solver: Solver, promise: Promise | None) -> list[Instance]:
        """Few of which the rule claims something, each with other operands and results that hold nothing."""
        telling = (
            one
            for one in iter(solver.solve, None)
            if _places(one) and (promise is None or promise.is_kept(solver.told, solver.types))
        )
        drawn = list(islice(telling, _CHOICE * EACH))
        found: list[Instance] = []
        while drawn and len(found) < EACH:
            best = min(drawn, key=lambda one: self._seen[key, *_places(one)])
            drawn = [one for one in drawn if one is not best]
            if not any(call.refusal for call in op_calls_of(best)) and not any(unusable_calls(best)):
                self._seen[key, *_places(best)] += 1
                found.append(best)
        self._in_vain[key] = 0 if found else self._in_vain[key] + 1
        return found


def in_same_state(rng: random.Random) -> random.Random:
    """One that draws what ``rng`` would, and leaves it as it is."""
    other = random.Random()
    other.setstate(rng.getstate())
    return other


def _places(instance: Instance) -> Trait:
    """Which operands and results of its calls have no elements, if there are any."""
    types = [ty for call in op_calls_of(instance) for ty in (*call.operands, *call.results)]
    return tuple(str(number) for number, ty in enumerate(types) if is_empty(ty))
