"""Ops that fit together as a rule puts them together.

In: what the body of a rule looks for, and the types and views of a vocabulary. Out: :class:`Instance`: calls, views,
pads and crops for the op variables of the body, such that its terms are well typed (``solver.py``). Of those that are
found, the ones that are least like those before are taken.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.soundness.rules.body_searches import BodySearch
from eqsat_layout.soundness.rules.empty_instances import EmptyInstances, in_same_state
from eqsat_layout.soundness.rules.fitting_parts import KINDS, FittingParts, MakeView, Shape
from eqsat_layout.soundness.rules.instance_traits import (
    Trait,
    alike,
    attribute_traits,
    calls_in,
    drawn_values,
    is_idle,
    is_tiny,
    op_calls_of,
    type_traits,
    unit_axes,
    unusable_calls,
)
from eqsat_layout.soundness.rules.known_ops import IS_PART, import_together, unusable
from eqsat_layout.soundness.rules.narrow_sums import adds_many, adds_narrowly, has_long_axis
from eqsat_layout.soundness.rules.promising import Promise
from eqsat_layout.soundness.rules.schema import OpCall
from eqsat_layout.soundness.rules.solver import Instance, Solver
from eqsat_layout.soundness.rules.term_types import TermTypes

EACH, TOGETHER = 4, 16
"""Instances of each body, and at the least of all together."""
DRAWS = 1000
"""Calls drawn for one body in one vocabulary."""
FIRST_DRAWS = 2000
"""The same for one that has no instance yet."""
CHOICE = 6
"""Times as many instances are drawn as are taken."""
LOOKS = 2
"""Times as many as are taken are run to see that they can be."""
LOOKED_AT = 8
"""Of these so many at once."""
IDLE = 0.2
"""How many are kept of those that say next to nothing; they are the first that are found."""
UNKEPT = 0.25
"""How many are of those of which the rule claims nothing: guards have to be seen false too."""
PATIENCE = 4
"""Times as many calls are drawn where a rule claims something of few."""
DOUBTED = 2
"""Refusals after which a value that an attribute never had in a call that TVM takes is tried last."""

VAIN = 16
"""Calls of an op that are views, pads or crops, before it is taken to be nothing else."""


class Instances:
    """Instances of bodies, in one vocabulary after the other; those of other vocabularies are kept."""

    def __init__(self, sought: Mapping[str, BodySearch], promises: Mapping[str, Promise] = MappingProxyType({})):
        """``sought``: by the keys of rules; ``promises``: what rules ask beyond it, by the same keys."""
        self._promises = promises
        self._bodies = {key: TermTypes.of(body) for key, body in sought.items()}
        self._found: dict[str, list[Instance]] = {}
        self._unusable: dict[str, str] = {}
        self._good: dict[str, list[OpCall]] = {}
        self._views: dict[str, set[OpCall]] = {}
        self._seen: Counter[Trait] = Counter()
        self._refused: Counter[Trait] = Counter()
        self._taken: Counter[Trait] = Counter()
        self._chosen: Counter[str] = Counter()
        self._in_vain: Counter[str] = Counter()
        self._empty = EmptyInstances()

    def keep(self, keys: Collection[str]) -> None:
        """Draws for these bodies only from now on."""
        self._bodies = {key: types for key, types in self._bodies.items() if key in keys}

    def draw(
        self, shapes: Sequence[Shape], parts: Sequence[Part], make_view: MakeView, rng: random.Random
    ) -> dict[str, list[Instance]]:
        """Instances of each body, some of those found before where no more are found."""
        count = max(EACH, TOGETHER // max(1, len(self._bodies)))
        made: dict[str, list[Instance]] = {}
        fitting = FittingParts(parts, make_view, rng)
        for key, types in self._bodies.items():
            if not types.alike and not any(text in KINDS or parameters(text) for text in types.named.values()):
                continue
            known = self._found.setdefault(key, [])
            promise = self._promises.get(key)
            draws = (DRAWS if known else FIRST_DRAWS) * (1 if promise is None else PATIENCE)
            draws //= 1 + self._in_vain[key]  # the harder it is, the less comes of yet more of it
            solver = Solver(types, shapes, fitting, rng, draws, self._good, self._chosen, promise)
            fresh: list[Instance] = []
            telling = False
            for _ in range(1 if known else PATIENCE):
                if self._is_vain(types):
                    break
                patience = max(1, PATIENCE // (1 + self._in_vain[key]))
                kept, others = _telling(solver, promise, CHOICE * count, patience, rng)
                fresh = self._usable(key, kept, count - int(UNKEPT * count) if others else count)
                telling = telling or bool(fresh)
                fresh += self._usable(key, others, count - len(fresh))
                if fresh or solver.draws <= 0:
                    break  # else what fits together does not run, or is a view
            if self._needs_long(key, fresh):
                solver = Solver(types, shapes, fitting, rng, DRAWS, self._good, self._chosen, promise, is_long=True)
                fresh += self._long(key, _telling(solver, promise, CHOICE * LOOKED_AT, 1, rng)[0])
            made[key] = [*fresh, *rng.sample(known, min(max(0, count - len(fresh)), len(known)))]
            known += fresh
            if known:
                beside, few = in_same_state(rng), self._empty.draws(key)
                solver = Solver(types, shapes, fitting, beside, few, self._good, Counter(), promise, may_be_empty=True)
                made[key] += self._empty.solved(key, solver, promise)
            self._in_vain[key] = 0 if telling else self._in_vain[key] + 1
        return made

    def _usable(self, key: str, drawn: Iterable[Instance], count: int) -> list[Instance]:
        """Up to so many that can be run, the ones that are least like those before."""
        legal = islice(filter(self._is_legal, self._unlike(key, drawn)), LOOKS * count)
        found: list[Instance] = []
        while len(found) < count and (looked_at := list(islice(legal, min(LOOKED_AT, count - len(found))))):
            import_together(calls_in({key: looked_at}))
            for instance in looked_at:
                why = dict(unusable_calls(instance))
                if why:
                    self._unusable[key] = next(iter(why.values()))
                else:
                    found.append(instance)
                for call in calls_in({key: [instance]}):  # each by itself: of five that fit together one is no op
                    self._good.setdefault(call.name, []).extend([] if call in why else [call])
            for call in calls_in({key: looked_at}):
                if unusable(call) == IS_PART:
                    self._views.setdefault(call.name, set()).add(call)
            if self._is_vain(self._bodies[key]):
                break
        return found

    def _needs_long(self, key: str, fresh: Sequence[Instance]) -> bool:
        """Whether one of a body adds up narrow floats, and none so many that this ends: of few long ones most do it
        along another axis."""
        calls = list(calls_in({key: [*self._found[key], *fresh]}))
        return any(map(adds_narrowly, calls)) and not any(map(adds_many, calls))

    def _long(self, key: str, drawn: Sequence[Instance]) -> list[Instance]:
        """One that does, if it is found."""
        long = [one for one in drawn if any(map(has_long_axis, calls_in({key: [one]})))]
        for instance in filter(self._is_legal, long[:LOOKED_AT]):
            if self._usable(key, [instance], 1) and any(map(adds_many, calls_in({key: [instance]}))):
                return [instance]
        return []

    def _is_vain(self, types: TermTypes) -> bool:
        """Whether an op of the body is a view, a pad or a crop in whatever call, or none can be written down."""
        names = types.named.values()
        if any(p.is_code for name in names for p in parameters(name) or ()):
            return True
        return any(len(self._views.get(name, ())) >= VAIN and not self._good.get(name) for name in names)

    def why_none(self, key: str) -> str:
        """Why what was drawn for a body was no instance; empty if there are some, or nothing was drawn."""
        return "" if self._found.get(key) else self._unusable.get(key, "")

    def _unlike(self, key: str, drawn: Iterable[Instance]) -> Iterator[Instance]:
        """The instances, those first whose attributes have values that were seen least; of every three one for its
        types as well, and one for the axes of its operands of which few are of one element: along these a window, or
        how far its elements are apart, makes no difference."""
        waiting = [(instance, attribute_traits(key, instance), type_traits(key, instance)) for instance in drawn]
        for way in itertools.cycle(("attributes", "types", "thick")):
            if not waiting:
                break
            best = min(
                waiting,
                key=lambda one: (
                    alike(one[0]),
                    is_tiny(one[0]),
                    self._doubts(one[0]),
                    unit_axes(one[0]) if way == "thick" else 0,
                    self._times((*one[1], *(one[2] if way == "types" else ()))),
                ),
            )
            waiting = [one for one in waiting if one is not best]
            self._seen.update((*best[1], *best[2]))
            yield best[0]

    def _doubts(self, instance: Instance) -> int:
        """How many attributes have values with which TVM refused calls, and took none."""
        values = [value for call in op_calls_of(instance) for value in drawn_values(call)]
        return sum(self._refused[value] >= DOUBTED and not self._taken[value] for value in values)

    def _is_legal(self, instance: Instance) -> bool:
        """Whether TVM legalises its calls; what their attributes are is remembered either way."""
        calls = op_calls_of(instance)
        for call in calls:
            (self._refused if call.refusal else self._taken).update(drawn_values(call))
        return not any(call.refusal for call in calls)

    def _times(self, traits: Iterable[Trait]) -> int:
        return sum(self._seen[trait] for trait in traits)


def _telling(
    solver: Solver, promise: Promise | None, count: int, patience: int, rng: random.Random
) -> tuple[list[Instance], list[Instance]]:
    """What is solved, and few of those that say little: those of which the rule claims something, and others, up to
    ``patience`` times as many."""
    kept: list[Instance] = []
    others: list[Instance] = []
    draws = solver.draws
    for instance in iter(solver.solve, None):
        is_kept = promise is None or promise.is_kept(solver.told, solver.types)
        may_be_twins = is_kept and len(others) > len(kept)
        if rng.random() < IDLE or not is_idle(instance, may_be_twins=may_be_twins):
            (kept if is_kept else others).append(instance)
        is_late = solver.draws < (1 - 1 / PATIENCE) * draws
        if len(kept) >= (count / CHOICE if is_late else count) or len(others) >= patience * count:
            break
    return kept, others[:count]
