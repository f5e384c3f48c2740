"""Views, pads and crops that fit into a body: those of a vocabulary, or new ones where none of these does.

In: which of the three, or the Relax op that it is called, and what is known of the types of operand and result. Out: a
part, or :class:`MisfitError`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from eqsat_layout.graph.borders import Border, Part
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.part_calls import part_calls
from eqsat_layout.maps import IndexMap

KINDS = ("view", "pad", "crop")
TRIES = 60
"""Views drawn for one that makes a shape of a shape, or is called so."""
_NEW_VIEWS = 3
"""New views between two shapes, where those of the vocabulary leave all in its place."""
_OF_ZEROS = 0.4
"""How often a pad is one of zeros, where it may be any."""

Shape = tuple[int, ...]
Type = TensorType | tuple[TensorType, ...]
"""Of a tensor, or of a tuple of them."""
MakeView = Callable[[Shape, random.Random], IndexMap]


class MisfitError(Exception):
    """What was chosen so far leaves nothing that fits."""


class FittingParts:
    """The parts of one vocabulary, and what makes its views."""

    def __init__(self, parts: Sequence[Part], make_view: MakeView, rng: random.Random):
        self._parts, self._make_view, self._rng = parts, make_view, rng
        self._called: dict[str, list[Part]] = {}
        self._drawn: dict[tuple[Shape, Shape], list[IndexMap]] = {}

    def has(self, text: str) -> bool:
        """Whether some of them are called so."""
        return text in KINDS or bool(self._those_called(text))

    def _those_called(self, text: str) -> list[Part]:
        if text not in self._called:
            self._called[text] = [part for part in self._parts if _is_called(part, text)]
        return self._called[text]

    def part(self, text: str, operands: Sequence[TensorType | None], result: Type | None) -> Part:
        """A view, pad or crop of the vocabulary, or a new one where none fits."""
        if isinstance(result, tuple) or len(operands) != 1:
            raise MisfitError
        given = operands[0]
        if any(ty is not None and 0 in ty.shape for ty in (given, result)):
            raise MisfitError  # programs have no views of what holds nothing: it stays as it lies
        called = self._those_called(text)
        fitting = [
            part
            for part in called
            if (given is None or taken(part) == given.shape)
            and (result is None or tuple(part.result_shape) == result.shape)
        ]
        if given is not None and result is not None and fitting and all(map(_is_idle, fitting)):
            fitting += [
                view for view in self._views_between(_extents(given), _extents(result)) if _is_called(view, text)
            ]
        zeros = [part for part in fitting if isinstance(part, Border) and part.fill == 0]
        if zeros and self._rng.random() < _OF_ZEROS:  # more ops keep them than any other border
            return self._rng.choice(zeros)
        if fitting:
            return self._rng.choice(fitting)
        if not called or (given is None and result is None):
            raise MisfitError
        kind = _kind_of(called[0])
        shape = None if given is None else _extents(given)
        if kind != "view" and not shape:
            raise MisfitError  # a number alone has no border
        for _ in range(TRIES):
            if shape is None:
                part = self._into(kind, result.shape if result else ())
            else:
                part = self._new(kind, shape) if result is None else self._between(kind, shape, result.shape)
            if _is_called(part, text):
                return part
        raise MisfitError

    def _views_between(self, shape: Shape, made: Shape) -> list[IndexMap]:
        """A few new views that make a shape of a shape, but for those that leave all in its place: of these alone it is
        true that they commute."""
        if (shape, made) not in self._drawn:
            drawn = (self._make_view(shape, self._rng) for _ in range(TRIES))
            found = dict.fromkeys(view for view in drawn if tuple(view.result_shape) == made and not view.is_identity)
            self._drawn[shape, made] = list(found)[:_NEW_VIEWS]
        return self._drawn[shape, made]

    def _between(self, kind: str, shape: Shape, wanted: Sequence[Any]) -> Part:
        """A new one that makes a shape of a shape."""
        if kind == "view":
            reshape = IndexMap.reshape(shape, wanted)
            for _ in range(TRIES if reshape is None or self._rng.random() < 0.5 else 0):
                view = self._make_view(shape, self._rng)
                if tuple(view.result_shape) == tuple(wanted):
                    return view
            if reshape is None:
                raise MisfitError
            return reshape
        added = [big - small for small, big in zip(shape, wanted, strict=True)] if len(wanted) == len(shape) else [0]
        added = [-n for n in added] if kind == "crop" else added
        if min(added) < 0 or not any(added):
            raise MisfitError
        lows = [self._rng.randint(0, n) for n in added]
        widths = tuple((low, n - low) for low, n in zip(lows, added, strict=True))
        if kind == "pad":
            return Border(shape, widths, self._rng.choice((0.0, 1.0)))
        return Border(tuple(int(e) for e in wanted), widths, None)

    def _into(self, kind: str, wanted: Sequence[Any]) -> Part:
        """A new one that makes a shape of some other."""
        view = self._make_view(tuple(int(e) for e in wanted), self._rng).inverse() if kind == "view" else None
        if view is None:
            raise MisfitError
        return view

    def _new(self, kind: str, shape: Shape) -> Part:
        if kind == "view":
            return self._make_view(shape, self._rng)
        widths = [(0, 0)] * len(shape)
        axis = self._rng.randrange(len(shape))
        widths[axis] = self._rng.choice(((0, 1), (1, 0), (1, 1)))
        if kind == "pad":
            return Border(shape, tuple(widths), self._rng.choice((0.0, 1.0)))
        inner = [e - sum(w) for e, w in zip(shape, widths, strict=True)]
        if min(inner) < 1:
            raise MisfitError
        return Border(tuple(inner), tuple(widths), None)


def taken(part: Part) -> Shape:
    """The shape that it takes."""
    shape = part.wide_shape if isinstance(part, Border) and part.fill is None else part.shape
    return tuple(int(e) for e in shape)


def _extents(ty: TensorType) -> Shape:
    return tuple(int(e) for e in ty.shape)


def _is_idle(part: Part) -> bool:
    return isinstance(part, IndexMap) and part.is_identity


def _is_called(part: Part, text: str) -> bool:
    return text == _kind_of(part) or text in [call.name for call in part_calls(part)]


def _kind_of(part: Part) -> str:
    return "view" if isinstance(part, IndexMap) else "crop" if part.fill is None else "pad"
