"""Ops that fit together as a rule puts them together.

In: what the body of a rule looks for, and the types and views of a vocabulary. Out: :class:`Instance`: calls, views,
pads and crops for the op variables of the body, such that its terms are well typed. Types are solved for: terms that
must be of one type are one node; ops are drawn one after the other, over what is known of their operands by then.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from eqsat_layout.egraph.expressions import Expr, is_variable
from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.op_calls import parameters
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.draws import DTYPES
from eqsat_layout.soundness.rules.ops import unusable, usual_call
from eqsat_layout.soundness.rules.schema import KEPT, Call, all_ops, drawn, random_type
from eqsat_layout.soundness.rules.sought import Sought, is_text
from eqsat_layout.soundness.rules.term_types import Applied, TermTypes

Instance = Mapping[str, Call | Part]
"""By the op variables of a body."""

DRAWS = 400
"""Calls drawn for one body in one vocabulary."""
FIRST_DRAWS = 1200
"""The same for one that has no instance yet."""
CHOICE = 12
"""Times as many instances are drawn as are taken."""
_LIKE_ANOTHER = 0.7
"""How often an op has attributes of another of its name."""
_OTHER_ORDER = 0.2
_AS_USUAL = 0.3
"""How often an op of whose operands nothing is known takes those that it takes elsewhere."""
LOOKS = 4
"""Times as many as are taken are run to see that they can be."""
_OF_ONE = 60
"""Calls drawn for one op before everything is begun anew."""
_OF_ANY = 100
"""Ops tried where the body names none."""
_KINDS = ("view", "pad", "crop")

Shape = tuple[int, ...]
Type = TensorType | tuple[TensorType, ...]
"""Of a tensor, or of a tuple of them."""
MakeView = Callable[[Shape, random.Random], IndexMap]


class Instances:
    """Instances of bodies, in one vocabulary after the other; those of other vocabularies are kept."""

    def __init__(self, sought: Mapping[str, Sought]):
        """``sought``: by the keys of rules."""
        self._bodies = {key: TermTypes.of(body) for key, body in sought.items()}
        self._found: dict[str, list[Instance]] = {}
        self._good: dict[str, list[Call]] = {}
        self._seen: Counter[tuple[str, ...]] = Counter()

    def draw(
        self, shapes: Sequence[Shape], parts: Sequence[Part], make_view: MakeView, rng: random.Random, count: int
    ) -> dict[str, list[Instance]]:
        """``count`` instances of each body where so many are found: those whose attributes were drawn least so far."""
        made: dict[str, list[Instance]] = {}
        for key, types in self._bodies.items():
            if not any(text in _KINDS or parameters(text) for text in types.named.values()):
                continue
            known = self._found.setdefault(key, [])
            solver = _Solver(types, shapes, parts, make_view, rng, DRAWS if known else FIRST_DRAWS, self._good)
            drawn = list(islice(iter(solver.solve, None), CHOICE * count))
            drawn.sort(key=lambda instance: (_alike(instance), self._seen[_attributes(key, instance)]))
            self._seen.update(_attributes(key, instance) for instance in drawn)
            fresh = list(islice(filter(_is_computable, drawn[: LOOKS * count]), count))
            made[key] = [*fresh, *rng.sample(known, min(count - len(fresh), len(known)))]
            known += fresh
            for call in calls_in({key: fresh}):
                self._good.setdefault(call.name, []).append(call)
        return made


class _MisfitError(Exception):
    """What was chosen so far leaves nothing that fits."""


class _Solver:
    """Draws ops for one body until ``draws`` are used up."""

    def __init__(
        self,
        types: TermTypes,
        shapes: Sequence[Shape],
        parts: Sequence[Part],
        make_view: MakeView,
        rng: random.Random,
        draws: int,
        good: Mapping[str, Sequence[Call]],
    ):
        self._good = good
        self._nodes, self._shapes, self._parts, self._make_view = types, shapes, parts, make_view
        self._rng, self.draws = rng, draws

    def solve(self) -> Instance | None:
        """One instance, or None if the draws are used up."""
        while self.draws > 0:
            self._types: dict[int, Type] = {}
            self._lists: dict[str, tuple[TensorType, ...]] = {}
            self._calls: dict[str, Call | Part] = {}
            self._places: dict[str, int] = {}
            self._told: dict[Expr | None, Any] = {}
            self._dtype = "float32" if self._rng.random() < 0.6 else self._rng.choice(DTYPES)
            self.draws -= 1
            try:
                self._solve()
            except _MisfitError:
                continue
            return self._calls
        return None

    def _solve(self) -> None:
        waiting = [a for a in self._nodes.applied if a.key in self._nodes.named]
        unnamed = [a for a in self._nodes.applied if a.key not in self._nodes.named]
        while waiting:
            self._take_parts()
            applied = max(waiting, key=lambda a: (a.key in self._calls, self._known(a), self._rng.random()))
            waiting.remove(applied)
            known = self._calls.get(applied.key) or self._drawn(applied)
            self._calls[applied.key] = known
            if isinstance(known, Call):
                said = self._nodes.attributes.get(applied.key, ())
                self._told.update({value: known.values[name] for name, value in said if name in known.values})
            self._note(applied, *_types_of(known, self._operands(applied)[:1], self._dtype))
        self._take_parts()
        for applied in unnamed:
            self._any_op(applied)

    def _known(self, applied: Applied) -> float:
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
                    raise _MisfitError
                if not is_variable(index) or self._nodes.root(one) not in self._types:
                    self._set(one, fields[at])

    def _set(self, node: int, ty: Type) -> None:
        root = self._nodes.root(node)
        if self._types.setdefault(root, ty) != ty:
            raise _MisfitError

    def _note(self, applied: Applied, operands: Sequence[TensorType], result: Type) -> None:
        count = len(applied.operands)
        if len(operands) < count or (not applied.rest and len(operands) != count):
            raise _MisfitError
        for node, ty in zip(applied.operands, operands, strict=False):
            self._set(node, ty)
        if applied.rest and self._lists.setdefault(applied.rest, tuple(operands[count:])) != tuple(operands[count:]):
            raise _MisfitError
        for index, node in self._nodes.items.get(applied.rest, ()):
            if self._place(index) >= len(operands) - count:
                raise _MisfitError
            self._set(node, operands[count + self._place(index)])
        self._set(applied.result, result)

    def _operands(self, applied: Applied) -> list[TensorType | None]:
        """The types of the operands, as far as they are known."""
        types = [self._types.get(self._nodes.root(node)) for node in applied.operands]
        if any(isinstance(ty, tuple) for ty in types):
            raise _MisfitError
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

    def _drawn(self, applied: Applied) -> Call | Part:
        text = self._nodes.named[applied.key]
        operands = self._operands(applied)
        result = self._types.get(self._nodes.root(applied.result))
        if text in _KINDS:
            return self._part(text, operands, result)
        if parameters(text) is None:
            raise _MisfitError
        for _ in range(_OF_ONE):
            self.draws -= 1
            if self.draws <= 0:
                break
            call = self._call(text, applied, operands, result)
            if call.made is not None and self._agrees(applied, call, result):
                return call
        raise _MisfitError

    def _any_op(self, applied: Applied) -> None:
        """Some op for a variable that any op may be; only where operands of several types are known.

        Others are found among the ops that every vocabulary has.
        """
        operands = self._operands(applied)
        result = self._types.get(self._nodes.root(applied.result))
        if applied.key in self._calls or applied.rest or None in operands or len(set(operands)) < 2:
            return
        for _ in range(_OF_ANY):
            call = drawn(self._rng.choice(all_ops()), operands, self._rng, exact=True)
            if call.operands == tuple(operands) and call.made is not None and result in (None, call.made):
                self._calls[applied.key] = call
                return

    def _call(self, text: str, applied: Applied, known: Sequence[TensorType | None], result: Type | None) -> Call:
        """One draw of an op; where nothing is known, on a tensor of the vocabulary, a small one, or what it takes."""
        rng = self._rng
        first = known[0] if known else None
        if first is None and isinstance(result, TensorType) and rng.random() < 0.6:
            first = result
        usual = usual_call(text) if rng.random() < 0.6 else None
        if usual is not None and rng.random() < 0.5:
            usual = rng.choice(self._good.get(text) or [usual])
        if first is None:
            if usual is not None and None not in known and rng.random() < 0.3 and not self._nodes.attributes:
                return usual
            first = self._first(usual)
            if usual is not None and not any(known) and rng.random() < _AS_USUAL and len(usual.operands) == len(known):
                first, known = usual.operands[0], usual.operands
                if len(known) == 1 and first.shape and rng.random() < 0.5:
                    first = _resized(first, rng)
        exact = not applied.rest or applied.rest in self._lists
        return drawn(text, [first, *known[1:]], rng, exact=exact, kept=self._kept(applied, text, usual))

    def _kept(self, applied: Applied, text: str, usual: Call | None) -> dict[str, Any]:
        """Attributes that are not drawn: some of another op of that name, so that they differ in few; what is said."""
        rng = self._rng
        found: dict[str, Any] = {}
        others = [c for c in self._calls.values() if isinstance(c, Call) and c.name == text]
        if rng.random() < _LIKE_ANOTHER:
            like = rng.choice(others) if others else usual
            found = {k: _turned(v, rng) for k, v in (like.values if like else {}).items() if rng.random() < KEPT}
        defaults = {p.name: p.default for p in parameters(text) or () if not p.is_required}
        for name, value in self._nodes.attributes.get(applied.key, ()):
            if value is None:
                found.update({name: defaults[name]} if name in defaults else {})
            elif is_variable(value):
                found.update({name: self._told[value]} if value in self._told else {})
            else:
                found[name] = _plain(str(value))
        return found

    def _first(self, usual: Call | None) -> TensorType:
        rng = self._rng
        if usual is None or not usual.operands:
            if rng.random() < 0.7:
                return TensorType(rng.choice(self._shapes), self._dtype)
            return random_type(rng, (self._dtype,))
        rank = len(usual.operands[0].shape)
        fitting = [shape for shape in self._shapes if len(shape) == rank]
        extent = rng.choice((1, 2, 2, 3))
        options = [usual.operands[0].shape, (extent,) * rank, *fitting, *fitting]
        return TensorType(rng.choice(options), self._dtype if rng.random() < 0.8 else usual.operands[0].dtype)

    def _agrees(self, applied: Applied, call: Call, result: Type | None) -> bool:
        """Whether a call gives what is wanted, and is of one type where the body says so."""
        if result is not None and call.made != result:
            return False
        types = dict(zip(map(self._nodes.root, applied.operands), call.operands, strict=False))
        if any(types[self._nodes.root(n)] != ty for n, ty in zip(applied.operands, call.operands, strict=False)):
            return False
        return types.get(self._nodes.root(applied.result), call.made) == call.made

    def _part(self, kind: str, operands: Sequence[TensorType | None], result: Type | None) -> Part:
        """A view, pad or crop of the vocabulary, or a new one where none fits."""
        if isinstance(result, tuple) or len(operands) != 1:
            raise _MisfitError
        given = operands[0]
        fitting = [
            part
            for part in self._parts
            if _kind_of(part) == kind
            and (given is None or _takes(part) == given.shape)
            and (result is None or tuple(part.result_shape) == result.shape)
        ]
        if fitting:
            return self._rng.choice(fitting)
        if given is None or not given.shape:
            raise _MisfitError
        shape = tuple(int(e) for e in given.shape)
        return self._new_part(kind, shape) if result is None else self._part_between(kind, shape, result.shape)

    def _part_between(self, kind: str, shape: Shape, wanted: Sequence[Any]) -> Part:
        """A new one that makes a shape of a shape."""
        if kind == "view":
            for _ in range(_OF_ONE):
                view = self._make_view(shape, self._rng)
                if tuple(view.result_shape) == tuple(wanted):
                    return view
            raise _MisfitError
        added = [big - small for small, big in zip(shape, wanted, strict=True)] if len(wanted) == len(shape) else [0]
        added = [-n for n in added] if kind == "crop" else added
        if min(added) < 0 or not any(added):
            raise _MisfitError
        lows = [self._rng.randint(0, n) for n in added]
        widths = tuple((low, n - low) for low, n in zip(lows, added, strict=True))
        if kind == "pad":
            return Border(shape, widths, self._rng.choice((0.0, 1.0)))
        return Border(tuple(int(e) for e in wanted), widths, None)

    def _new_part(self, kind: str, shape: Shape) -> Part:
        if kind == "view":
            return self._make_view(shape, self._rng)
        widths = [(0, 0)] * len(shape)
        axis = self._rng.randrange(len(shape))
        widths[axis] = self._rng.choice(((0, 1), (1, 0), (1, 1)))
        if kind == "pad":
            return Border(shape, tuple(widths), self._rng.choice((0.0, 1.0)))
        inner = [e - sum(w) for e, w in zip(shape, widths, strict=True)]
        if min(inner) < 1:
            raise _MisfitError
        return Border(tuple(inner), tuple(widths), None)


def _types_of(
    known: Call | Part, operands: Sequence[TensorType | None], dtype: str
) -> tuple[Sequence[TensorType], Type]:
    """The types of operands and result; a view, pad or crop is of the dtype that its operand is."""
    if isinstance(known, Call):
        assert known.made is not None
        return known.operands, known.made
    given = operands[0] if operands else None
    dtype = dtype if given is None else given.dtype
    return [TensorType(_takes(known), dtype)], TensorType(tuple(known.result_shape), dtype)


def _takes(part: Part) -> Shape:
    shape = part.wide_shape if isinstance(part, Border) and part.fill is None else part.shape
    return tuple(int(e) for e in shape)


def _plain(text: str) -> Any:
    """An attribute as a rule has it: a number, or what text says in Python's way."""
    try:
        return ast.literal_eval(text[1:-1] if is_text(text) else text)
    except (ValueError, SyntaxError):
        return text


def _resized(ty: TensorType, rng: random.Random) -> TensorType:
    """The type with another extent."""
    shape = list(ty.shape)
    shape[rng.randrange(len(shape))] = rng.randint(1, 6)
    return TensorType(tuple(shape), ty.dtype)


def _turned(value: Any, rng: random.Random) -> Any:
    """The attribute; of a list, sometimes its numbers in another order."""
    return rng.sample(value, len(value)) if isinstance(value, list) and rng.random() < _OTHER_ORDER else value


def _alike(instance: Instance) -> int:
    """How many of its calls have a twin."""
    calls = [(c.name, c.operands, str(c.attributes)) for c in instance.values() if isinstance(c, Call)]
    return len(calls) - len(set(calls))


def _is_computable(instance: Instance) -> bool:
    return not any(call.refusal or unusable(call) for call in instance.values() if isinstance(call, Call))


def _attributes(key: str, instance: Instance) -> tuple[str, ...]:
    """The attributes of all calls, as TVM has them and not as they were written; views, pads and crops themselves."""
    chosen = (instance[name] for name in sorted(instance))
    return (key, *(str(c.build(*c.variables).attrs) if isinstance(c, Call) else str(c) for c in chosen))


def _kind_of(part: Part) -> str:
    return "view" if isinstance(part, IndexMap) else "crop" if part.fill is None else "pad"


def calls_in(instances: Mapping[str, Sequence[Instance]]) -> Iterator[Call]:
    """The calls of all instances."""
    for found in instances.values():
        for instance in found:
            yield from (call for call in instance.values() if isinstance(call, Call))


def parts_in(instances: Mapping[str, Sequence[Instance]]) -> Iterator[Part]:
    """The views, pads and crops of all instances."""
    for found in instances.values():
        for instance in found:
            yield from (part for part in instance.values() if not isinstance(part, Call))
