"""Reading and writing buffers for the interpreter of TIR.

In: a buffer's number and shape and the code of its indices. Out: code that loads, or a step that stores. Where the
indices are known before the run and affine in the loops, both go through a strided view; else through flat indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat_layout.soundness.oracle.tir_values import (
    Array,
    Code,
    Frame,
    InterpreterError,
    Mask,
    OutOfBoundsError,
    Pair,
    Step,
    decided_together,
    meet,
)

_REMEMBERED = 4096
"""Turns of loops of which an access keeps where it is."""


@dataclass(frozen=True)
class AccessPlace:
    """Where an access is: indices into a buffer, on a grid of ``axes`` axes. ``function`` and ``name`` are for errors.

    ``flat`` are row-major element numbers (no world axis), clipped; ``None`` if the run decides them. ``outside`` says
    where, among the lanes that ask, there is no such element; ``None`` if nowhere.
    """

    function: str
    name: str
    number: int
    shape: tuple[int, ...]
    axes: int
    indices: tuple[Code, ...]
    flat: Array | None
    outside: Mask | None
    turns: tuple[int, ...] | None = None
    """The slots of loop variables that decide where it is; ``None`` if something else does."""
    ones: dict[tuple[int, ...], int | None] = field(default_factory=dict, compare=False, repr=False)
    """By what these were, what ``_one`` gave: a loop goes through the same numbers in every run."""

    @staticmethod
    def of(
        function: str,
        name: str,
        number: int,
        shape: tuple[int, ...],
        axes: int,
        indices: Sequence[Code],
        lanes: Mask | None,
    ) -> AccessPlace:
        """The place; ``lanes`` are those that are known to be the only ones that ask."""
        known = [code.known for code in indices]
        at = [k for k in known if k is not None]
        if len(at) < len(known):
            turns = decided_together(indices)
            slots = None if turns is None else tuple(sorted(turns))
            return AccessPlace(function, name, number, shape, axes, tuple(indices), None, None, slots)
        flat, inside = _flattened(at, shape)
        flat = flat.reshape((1,) * (1 + axes - flat.ndim) + flat.shape)[0]
        bad = None if inside is None else (~inside if lanes is None else ~inside & lanes)
        if bad is not None and not bad.any():
            bad = None
        return AccessPlace(function, name, number, shape, axes, tuple(indices), flat, bad)

    @property
    def size(self) -> int:
        """Elements of the buffer, in one world."""
        return math.prod(self.shape)

    def load(self) -> Code:
        """The elements; undefined where an index is."""
        if self.flat is None:
            return Code(self._load_anywhere, None, True)
        look = self._look()
        number, outside = self.number, self.outside
        if outside is None:
            return Code(lambda frame, taken: look_at(frame, number, look))

        def run(frame: Frame, taken: Mask | None) -> Pair:
            self._refuse(outside, taken, "reads")
            return look_at(frame, number, look)

        return Code(run, None, True)

    def store(self, value: Code, grid: tuple[int, ...], lanes: Mask | None) -> Step:
        """Writes ``value`` on the grid, in the lanes that are known and asked for."""
        view = affine(self.flat, grid) if self.flat is not None and self.outside is None and lanes is None else None
        run, number = value.run, self.number
        if view is None:
            return lambda frame, taken: self._scatter(frame, run(frame, taken), meet(taken, lanes), grid)
        base, slopes = view
        covers = math.prod(grid) == self.size and is_one_to_one(self.flat, grid, None)

        def step(frame: Frame, taken: Mask | None) -> None:
            pair = run(frame, taken)
            if taken is not None:
                self._scatter(frame, pair, taken, grid)
                return
            values, defined = pair
            window(frame.values[number], base, slopes, grid)[...] = values
            mask = frame.masks[number]
            if defined is None and (covers or mask is None):
                frame.masks[number] = None
                return
            if mask is None:
                mask = frame.masks[number] = np.ones(frame.values[number].shape, bool)
            window(mask, base, slopes, grid)[...] = True if defined is None else defined

        return step

    def _look(self) -> Callable[[Array], Array]:
        """How to take the elements out of a buffer."""
        flat = self.flat
        assert flat is not None
        shape = flat.shape
        view = affine(flat, shape)
        if view is not None:
            base, slopes = view
            return lambda buffer: window(buffer, base, slopes, shape)
        if not self.size:
            return lambda buffer: np.zeros((len(buffer), *shape), buffer.dtype)
        return lambda buffer: buffer.reshape(len(buffer), -1).take(flat, axis=1)

    def _one_in(self, frame: Frame, taken: Mask | None) -> int | None:
        """The same where the turns of loops decide it; worked out once for each."""
        if self.turns is None:
            return None
        at = tuple([frame.scope[slot][0].item() for slot in self.turns])
        if at not in self.ones:
            one = self._one([code.run(frame, taken) for code in self.indices])
            if len(self.ones) >= _REMEMBERED:
                return one
            self.ones[at] = one
        return self.ones[at]

    def _one(self, indices: Sequence[Pair]) -> int | None:
        """The number of the element if it is the same one in all lanes and worlds, as step after step of a running sum,
        and there is such an element."""
        at = 0
        for (values, defined), extent in zip(indices, self.shape, strict=True):
            if defined is not None or values.size != 1:
                return None
            index = int(values.item())
            if not 0 <= index < extent:
                return None
            at = at * extent + index
        return at

    def _resolve(self, frame: Frame, indices: Sequence[Pair], taken: Mask | None, what: str) -> Pair:
        """Element numbers over all worlds, and where the indices are defined."""
        defined: Mask | None = None
        for _, mask in indices:
            defined = meet(defined, mask)
        flat, inside = _flattened([values for values, _ in indices], self.shape)
        if inside is not None:
            self._refuse(~inside, taken, what)
        return flat + (np.arange(frame.worlds) * self.size).reshape((-1,) + (1,) * self.axes), defined

    def _load_anywhere(self, frame: Frame, taken: Mask | None) -> Pair:
        buffer, mask = frame.values[self.number], frame.masks[self.number]
        one = self._one_in(frame, taken)
        if one is None:
            indices = [code.run(frame, taken) for code in self.indices]
            one = self._one(indices)
        if one is not None:
            return self._cell(buffer, one), None if mask is None else self._cell(mask, one)
        flat, defined = self._resolve(frame, indices, taken, "reads")
        if not buffer.size:
            return np.zeros(flat.shape, buffer.dtype), np.zeros(flat.shape, bool)
        values = buffer.reshape(-1).take(flat)
        return values, meet(defined, None if mask is None else mask.reshape(-1).take(flat))

    def _cell(self, array: Array, one: int) -> Array:
        """That element in all worlds."""
        return array.reshape(len(array), -1)[:, one].copy().reshape((-1,) + (1,) * self.axes)

    def _scatter(self, frame: Frame, pair: Pair, taken: Mask | None, grid: tuple[int, ...]) -> None:
        values, defined = pair
        whole = (frame.worlds, *grid)
        is_one = taken is None and math.prod(grid) == 1
        one = self._one_in(frame, taken) if is_one else None
        if one is None:
            indices = [code.run(frame, taken) for code in self.indices]
            one = self._one(indices) if is_one else None
        if one is not None:
            worlds = slice(one, None, self.size)
            frame.values[self.number].reshape(-1)[worlds] = values.reshape(-1)
            self._mark(frame, worlds, None if defined is None else defined.reshape(-1))
            return
        flat, sure = self._resolve(frame, indices, taken, "stores")
        lanes = None if taken is None else np.broadcast_to(taken, whole)

        def asked(array: Array) -> Array:
            """What it is in the lanes that ask."""
            array = np.broadcast_to(array, whole)
            return array if lanes is None else array[lanes]

        if sure is not None and not asked(sure).all():
            raise InterpreterError(f"{self.function}: stores to {self.name} at an index that is not defined")
        place = asked(flat)
        if not place.size:
            return
        frame.values[self.number].reshape(-1)[place] = asked(values)
        self._mark(frame, place, None if defined is None else asked(defined))

    def _mark(self, frame: Frame, place: Any, defined: Mask | None) -> None:
        """Notes whether what was written to elements is defined."""
        mask = frame.masks[self.number]
        if mask is None and defined is None:
            return
        if mask is None:
            mask = frame.masks[self.number] = np.ones(frame.values[self.number].shape, bool)
        mask.reshape(-1)[place] = True if defined is None else defined

    def _refuse(self, outside: Mask, taken: Mask | None, what: str) -> None:
        if (outside if taken is None else outside & taken).any():
            raise OutOfBoundsError(f"{self.function}: {what} outside of {self.name}")


def look_at(frame: Frame, number: int, look: Callable[[Array], Array]) -> Pair:
    """The elements and their mask."""
    mask = frame.masks[number]
    return look(frame.values[number]), None if mask is None else look(mask)


def _flattened(at: Sequence[Array], shape: tuple[int, ...]) -> tuple[Array, Mask | None]:
    """Row-major element numbers of clipped indices, and where they are inside (``None``: everywhere)."""
    flat = np.zeros(1, np.int64)
    inside: Mask | None = None
    for index, extent in zip(at, shape, strict=True):
        number = index.astype(np.int64, copy=False)
        if number.size and (number.min() < 0 or number.max() >= extent):
            inside = meet(inside, (number >= 0) & (number < extent))
            number = np.clip(number, 0, max(extent - 1, 0))
        flat = flat * extent + number
    return flat, inside


def affine(flat: Array | None, grid: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """``(base, slopes)`` if element numbers are ``base + sum slope * index`` on the grid (broadcast to it)."""
    if flat is None or not flat.size or 0 in grid:
        return None
    base = int(flat[(0,) * flat.ndim])
    slopes = []
    again: Array = np.asarray(base)
    for axis, extent in enumerate(flat.shape):
        slope = 0
        if extent > 1:
            slope = int(flat[tuple(int(k == axis) for k in range(flat.ndim))]) - base
            again = again + (slope * np.arange(extent)).reshape([-1 if k == axis else 1 for k in range(flat.ndim)])
        slopes.append(slope)
    return (base, tuple(slopes)) if np.array_equal(np.broadcast_to(again, flat.shape), flat) else None


def window(buffer: Array, base: int, slopes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """A view of a contiguous ``buffer`` (worlds first): element ``base + sum slope * index`` at an index."""
    item = buffer.itemsize
    strides = (buffer.size // len(buffer) * item, *(slope * item for slope in slopes))
    return np.ndarray((len(buffer), *shape), buffer.dtype, buffer, base * item, strides)


def is_one_to_one(flat: Array | None, grid: tuple[int, ...], lanes: Mask | None) -> bool:
    """Whether every point of the grid (where ``lanes`` hold) has an element of its own."""
    if flat is None:
        return False
    whole = np.broadcast_to(flat, grid)
    if lanes is not None:
        whole = whole[np.broadcast_to(lanes[0] if lanes.ndim > len(grid) else lanes, grid)]
    return np.unique(whole).size == whole.size
