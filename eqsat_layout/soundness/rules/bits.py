"""Tensors compared bit for bit, and the elements that they are made of.

In: shapes and dtypes. Out: arrays of several worlds, first axis. Two worlds hold small numbers, of which sums and
products are exact, and the second one some that rules speak of; one is full of special ones: NaN, infinities, zeros of
both signs, denormals, ends of integers, and the last, which computes as devices do, of the same; two hold two special
numbers each, the same in all tensors of a model, so that these meet everywhere; one is rough, so that every rounding
shows. NaN is one value, whatever its payload; -0.0 is not 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from eqsat_layout.tir.arithmetic import are_floats

Array = npt.NDArray[Any]

THEMES = 2
"""Worlds of two special numbers each."""
WORLDS = 5 + THEMES
DEVICE_WORLD = WORLDS - 1
"""The one that computes as devices do."""
_FEW = 3
_PLACES = (2, 2, 3, 4)
"""How many places indices are drawn of."""
_SPOKEN = 0.3
"""How often an element of that world is one of the numbers that rules speak of."""
_FORGETFUL = 8
"""One of so many pairs of floats is NaN and an infinity: what keeps the larger of two forgets a NaN, and what stood
before it, when a number follows."""
_OPPOSED = 0.4
"""How often a special world that holds few numbers holds two that undo each other, or are equal and not the same."""


def canonical(array: Array) -> Array:
    """The array, contiguous, with one NaN for all."""
    array = np.ascontiguousarray(array)
    if are_floats(array.dtype):
        strange = np.isnan(array)
        if strange.any():
            array = np.where(strange, array.dtype.type(np.nan), array)
    return array


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are equal in shape, dtype and every bit."""
    return a.shape == b.shape and a.dtype == b.dtype and canonical(a).tobytes() == canonical(b).tobytes()


def holds(dtype: Any, number: float) -> bool:
    """Whether a number is one of this dtype."""
    dtype = np.dtype(dtype)
    if are_floats(dtype):
        with np.errstate(over="ignore"):
            return not np.isfinite(number) or bool(np.isfinite(dtype.type(number)))
    if dtype.kind == "b":
        return number in (0, 1)
    return bool(np.isfinite(number)) and number == int(number) and _fits(dtype, int(number))


def filled(dtype: Any, number: float) -> Any:
    """A number as an element of this dtype; where it is none, the nearest that can be written."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(min(max(0 if np.isnan(number) else number, int(info.min)), int(info.max)))
    with np.errstate(over="ignore"):
        return dtype.type(number)


def garbage(dtype: Any) -> Any:
    """What stands where nothing is defined."""
    dtype = np.dtype(dtype)
    return np.iinfo(dtype).max if dtype.kind in "iu" else filled(dtype, 1e30)


class RandomElements:
    """Draws the elements of the tensors of one model."""

    def __init__(self, seed: int, numbers: Sequence[float] = ()):
        """``numbers``: that are among the small ones of one world."""
        self._rng, self._numbers = np.random.default_rng(seed), numbers
        self._own_rng = np.random.default_rng((seed, 1))  # the rest is the same with numbers and without
        self._themes = [int(number) for number in self._rng.integers(1 << 16, size=THEMES)]

    def tensor(self, shape: Sequence[Any], dtype: Any = "float32") -> Array:
        """One in all worlds."""
        rng, dtype = self._rng, np.dtype(dtype)
        small = [_small(rng, shape, dtype) for _ in range(2)]
        chosen, share = specials(dtype), 0.7
        if rng.random() < 0.5:  # few of them, so that several stand side by side in every row
            is_pair = rng.random() < _OPPOSED
            chosen = _opposites(int(rng.integers(1 << 16)), dtype) if is_pair else rng.choice(chosen, _FEW)
            share = 0.95
        special = _strewn(rng, shape, chosen, share)
        themed = [_strewn(rng, shape, _opposites(theme, dtype), 0.95) for theme in self._themes]
        small[-1] = self._with_numbers(small[-1])
        return canonical(np.stack([*small, special, *themed, _rough(rng, shape, dtype), special]))

    def _with_numbers(self, array: Array) -> Array:
        """The tensor, with some of the numbers here and there."""
        held = [number for number in self._numbers if holds(array.dtype, number)]
        if not held:
            return array
        chosen = self._own_rng.choice(held, _FEW).astype(array.dtype)
        strewn = self._own_rng.random(array.shape) < _SPOKEN
        return np.asarray(np.where(strewn, self._own_rng.choice(chosen, array.shape), array))

    def indices(self, shape: Sequence[Any], dtype: Any) -> Array:
        """A tensor of integers that are 0 or 1, indices into most things; or up to 3, which longer axes have."""
        return self._rng.integers(0, self._rng.choice(_PLACES), (WORLDS, *shape)).astype(dtype)


def _strewn(rng: np.random.Generator, shape: Sequence[Any], chosen: Array, share: float) -> Array:
    """The chosen numbers, and small ones between them."""
    plain = _small(rng, shape, chosen.dtype)
    return np.where(rng.random(tuple(shape)) < share, rng.choice(chosen, tuple(shape)), plain).astype(chosen.dtype)


def plain_arrays(shape: Sequence[Any], dtype: Any) -> list[Array]:
    """Zeros, and a single 1 at either end, in all worlds: tensors of which views, pads and crops often agree."""
    size = int(np.prod(tuple(shape), dtype=int))
    flat = [np.zeros(size), *(np.eye(size)[[0, size - 1]] if size > 1 else ())]
    return [np.stack([a.reshape(tuple(shape)).astype(dtype)] * WORLDS) for a in flat]


def specials(dtype: Any) -> Array:
    """The numbers of a dtype at which arithmetic does what it does nowhere else."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = [info.min, int(info.min) + 1, info.max, int(info.max) - 1, 0, 1, int(info.max) // 2 + 1]
        return np.array([*ends, *([-1, -2] if info.min < 0 else [2]), *_beside_ties(dtype)], dtype)
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, least, tiny = float(limits.max), float(limits.smallest_subnormal), float(limits.tiny)
    numbers: list[float] = [np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, least, -least, tiny]
    numbers += [0.5, 1.5, 2.5, -0.5, -1.0, 1 / float(limits.eps), largest / 2]
    return np.array([*numbers, *_beside_ties(dtype), *_ends_of_narrower(dtype)], dtype)


def _beside_ties(dtype: np.dtype[Any]) -> Iterator[int | float]:
    """Numbers that lie next to the middle of two of a narrower float, by the last bit that they have: one in between
    rounds them to that middle, and the narrower one then the wrong way."""
    for narrow in (np.float32, np.float16):
        half = float(np.finfo(narrow).eps) / 2
        if dtype.kind in "iu":
            top = 1 << np.iinfo(dtype).bits - 2
            if top * half > 1 and top <= float(np.finfo(narrow).max):
                yield top + int(top * half) + 1
        elif np.finfo(narrow).bits < 8 * dtype.itemsize:
            yield 1 + half + float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _ends_of_narrower(dtype: np.dtype[Any]) -> Iterator[float]:
    """The largest numbers of narrower floats: what is finite in one may be infinite in the other."""
    for narrow in (np.float32, np.float16, ml_dtypes.bfloat16):
        if np.dtype(narrow).itemsize < dtype.itemsize:
            yield float(ml_dtypes.finfo(narrow).max)  # type: ignore[no-untyped-call]


def _opposites(number: int, dtype: np.dtype[Any]) -> Array:
    """The two ends of a dtype, or both zeros: of two tensors that hold these only, most elements undo each other; and
    ties, which orders and maxima decide somehow, are everywhere. Or two neighbours, which other dtypes have as one; a
    zero and what is rounded to the other one; NaN and an infinity."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = [[info.min, info.max], [info.max - 1, info.max], [info.min, info.min + 1]]
        return np.array(ends[number % len(ends)], dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, least = float(limits.max), float(limits.smallest_subnormal)
    pairs = [[np.inf, -np.inf], [0.0, -0.0], [largest, -largest], [-least, 0.0], [least, -0.0]]
    pairs.append([1.0, 1.0 + float(limits.eps)])
    rest, place = divmod(number, len(pairs))
    return np.array([np.nan, (-np.inf, np.inf)[place % 2]] if rest % _FORGETFUL == 0 else pairs[place], dtype)


def _small(rng: np.random.Generator, shape: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "b":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -4, 5, tuple(shape)).astype(dtype)
    return np.asarray(rng.integers(-8, 9, tuple(shape)).astype(dtype) / dtype.type(4))


def _rough(rng: np.random.Generator, shape: Sequence[Any], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "b":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, tuple(shape), dtype, endpoint=True)
    scale = 2.0 ** rng.integers(-3, 4, tuple(shape))
    return np.asarray(rng.standard_normal(tuple(shape)) * scale).astype(dtype)


def _fits(dtype: np.dtype[Any], number: int) -> bool:
    info = np.iinfo(dtype)
    return int(info.min) <= number <= int(info.max)
