"""Bijective index maps: permutations of the mixed-radix digits of a tensor's axes.

In: a shape and, per physical axis, the digits it is made of. Out: exact composition, inverse, identity and equality.
No TVM and no e-graph here. Split, fuse, reorder, reshape and transpose are all of this one form, which is closed under
composition and inverse wherever the radices divide; where they don't, an operation answers ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eqsat_layout.cached_property import cached_property
from eqsat_layout.errors import LayoutError

Extent = int | str
"""Size of an axis: a number, or the text of a symbolic expression such as ``"n"``."""

_AXIS_NAMES = "abcdefghijklmnopqrstuvwxyz"


class Digit(NamedTuple):
    """One digit of an axis: ``index[axis] // stride % extent``. A symbolic extent is always the whole axis."""

    axis: int
    stride: int
    extent: Extent


Dims = tuple[tuple[Digit, ...], ...]


def extent_product(extents: Iterable[Extent]) -> Extent:
    """Product of extents; ``"n*4"`` if one is symbolic. Factors are sorted, so equal products have equal text."""
    number = 1
    symbols: list[str] = []
    for extent in extents:
        if isinstance(extent, int):
            number *= extent
        else:
            symbols.append(extent)
    if not symbols or number == 0:
        return number
    factors = sorted(f"({s})" if not s.isidentifier() and (symbols[1:] or number != 1) else s for s in symbols)
    return "*".join(factors + ([str(number)] if number != 1 else []))


@dataclass(frozen=True)
class IndexMap:
    """A bijection from the indices of ``shape`` to physical indices.

    ``dims[p]`` lists the digits of physical axis ``p``, most significant first. Always canonical when built through
    :meth:`make`: digits of extent 1 are gone and adjacent digits of one axis are fused, so ``==`` is equality of maps.
    """

    shape: tuple[Extent, ...]
    dims: Dims

    @staticmethod
    def make(shape: Sequence[Extent], dims: Iterable[Iterable[tuple[int, int, Extent]]]) -> IndexMap:
        """The canonical map of ``dims``; :class:`LayoutError` if they are not a bijection on ``shape``."""
        canonical = IndexMap(tuple(shape), _canonical(dims))
        canonical._check_bijective()
        return canonical

    @staticmethod
    def identity(shape: Sequence[Extent]) -> IndexMap:
        """Row-major: every axis is where it was."""
        return _identity(tuple(shape), tuple(map(type, shape)))

    @staticmethod
    def permutation(shape: Sequence[Extent], axes: Iterable[int]) -> IndexMap:
        """Physical axis ``p`` is logical axis ``axes[p]`` (the convention of ``numpy.transpose``)."""
        axes = tuple(axes)
        if sorted(axes) != list(range(len(shape))):
            raise LayoutError(f"axes {axes} are not a permutation of the {len(shape)} axes of shape {tuple(shape)}")
        return IndexMap(tuple(shape), _canonical([Digit(a, 1, shape[a])] for a in axes))

    @staticmethod
    def reshape(source: Sequence[Extent], target: Sequence[Extent]) -> IndexMap | None:
        """The row-major reshape; ``None`` where the radices don't divide ((2, 3) to (3, 2)) or symbols are cut."""
        flat = [Digit(a, 1, e) for a, e in enumerate(source) if e != 1]
        if 0 in source or 0 in target:
            return IndexMap.identity(source) if tuple(source) == tuple(target) else None
        dims: list[list[Digit]] = []
        for extent in reversed(target):
            taken = _take_from_end(flat, extent)
            if taken is None:
                return None
            dims.append(taken)
        return None if flat else IndexMap(tuple(source), _canonical(reversed(dims)))

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """What was found out about it, by question."""
        return {}

    @cached_property
    def result_shape(self) -> tuple[Extent, ...]:
        """Extents of the physical axes."""
        if 0 in self.shape:
            zeros = [any(d.extent == 0 for d in digits) for digits in self.dims]
            return tuple(0 if z else extent_product(d.extent for d in g) for z, g in zip(zeros, self.dims, strict=True))
        return tuple(extent_product(d.extent for d in digits) for digits in self.dims)

    @cached_property
    def flat_digits(self) -> tuple[Digit, ...]:
        """All digits in memory order, outermost first, fused: equal iff two maps give the same bytes."""
        (digits,) = _canonical([[d for digits in self.dims for d in digits]])
        return digits

    @property
    def with_whole_axes(self) -> IndexMap:
        """The permutation in which axes have the order of their lowest digits: what is innermost stays there."""
        places = {digit.axis: place for place, digit in enumerate(self.flat_digits)}
        return IndexMap.permutation(self.shape, sorted(range(len(self.shape)), key=lambda axis: places.get(axis, -1)))

    @cached_property
    def is_identity(self) -> bool:
        """Physical indices are the logical ones, axis by axis."""
        return self == IndexMap.identity(self.shape)

    @cached_property
    def keeps_order(self) -> bool:
        """The bytes are those of row-major: at most a regrouping of axes."""
        return self.flat_digits == IndexMap.identity(self.shape).flat_digits

    @cached_property
    def splits_in_place(self) -> bool:
        """Row-major but for axes that are cut where they stand, as ``a.b/16.b%16.c``."""
        whole: list[tuple[Digit, ...]] = []
        for row in self.dims:
            joined = _canonical([(*whole[-1], *row)])[0] if whole else ()
            if whole and whole[-1] and row and len(joined) == 1:
                whole[-1] = joined
            else:
                whole.append(row)
        return tuple(whole) == IndexMap.identity(self.shape).dims

    @cached_property
    def permuted_axes(self) -> tuple[int, ...] | None:
        """The axes order if every physical axis is one whole logical axis, else ``None``."""
        if len(self.dims) != len(self.shape):
            return None
        units = iter([a for a, e in enumerate(self.shape) if e == 1])
        axes: list[int] = []
        for digits in self.dims:
            if len(digits) > 1 or (digits and digits[0].extent != self.shape[digits[0].axis]):
                return None
            axis = digits[0].axis if digits else next(units, None)
            if axis is None:
                return None
            axes.append(axis)
        return tuple(axes)

    def after(self, first: IndexMap) -> IndexMap | None:
        """``self o first``: ``first`` is applied first. ``None`` where the digits of the two don't divide."""
        if self.shape != first.result_shape:
            raise LayoutError(f"can't compose: {self} takes {self.shape}, {first} gives {first.result_shape}")
        dims: list[list[Digit]] = []
        for digits in self.dims:
            row: list[Digit] = []
            for digit in digits:
                part = slice_of_digits(first.dims[digit.axis], digit.stride, digit.extent)
                if part is None:
                    return None
                row.extend(part)
            dims.append(row)
        return IndexMap(first.shape, _canonical(dims))

    def inverse(self) -> IndexMap | None:
        """The map back. ``None`` only where a symbolic axis was fused with another (the digit can't be cut out)."""
        return self._inverse

    @cached_property
    def _inverse(self) -> IndexMap | None:
        places: dict[int, list[tuple[int, int, int, Extent]]] = {}
        for position, digits in enumerate(self.dims):
            if len(digits) > 1 and any(isinstance(d.extent, str) for d in digits):
                return None
            stride = 1
            for digit in reversed(digits):
                places.setdefault(digit.axis, []).append((digit.stride, position, stride, digit.extent))
                stride *= digit.extent if isinstance(digit.extent, int) else 1
        dims = [
            [Digit(p, t, e) for _, p, t, e in sorted(places.get(axis, []), key=lambda q: -q[0])]
            for axis in range(len(self.shape))
        ]
        return IndexMap(self.result_shape, _canonical(dims))

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``array`` of ``shape``, laid out: an array of ``result_shape``."""
        if array.shape != self.shape:
            raise LayoutError(f"array of shape {array.shape} given to a map of shape {self.shape}")
        return self.apply_to_each(array)

    def apply_to_each(self, arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same for every array along the axes in front of those of ``shape``."""
        more = arrays.ndim - len(self.shape)
        front, result = arrays.shape[:more], tuple(int(e) for e in self.result_shape)
        if 0 in self.shape:
            return arrays.reshape(front + result)
        split, order = self._digits
        places = [*range(more), *(more + place for place in order)]
        return np.ascontiguousarray(arrays.reshape(front + split).transpose(places)).reshape(front + result)

    @cached_property
    def _digits(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The extents of the digits as they stand in ``shape``, and which stand where in the result."""
        axis_digits: list[list[Digit]] = [[] for _ in self.shape]
        for digits in self.dims:
            for digit in digits:
                axis_digits[digit.axis].append(digit)
        split: list[int] = []
        position: dict[tuple[int, int], int] = {}
        for own in axis_digits:
            for digit in sorted(own, key=lambda d: -d.stride):
                position[digit.axis, digit.stride] = len(split)
                split.append(int(digit.extent))
        return tuple(split), tuple(position[d.axis, d.stride] for digits in self.dims for d in digits)

    @cached_property
    def key(self) -> str:
        """Text that identifies the map: ``1x32x8x8>a.b/16.c.d.b%16``; a symbolic extent is ``[n]``."""
        dims = ".".join("*".join(self._digit_text(d) for d in digits) or "1" for digits in self.dims)
        extents = (str(e) if isinstance(e, int) else "[" + e.replace(" ", "") + "]" for e in self.shape)
        return "x".join(extents) + ">" + dims

    @property
    def index_names(self) -> tuple[str, ...]:
        """What ``str`` calls the logical indices: ``i``, ``j``, ``k`` and on."""
        return tuple(_AXIS_NAMES[(8 + a) % 26] for a in range(len(self.shape)))

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """Every physical index over :attr:`index_names`, as ``str`` writes it."""
        names = self.index_names
        return tuple(" + ".join(_scaled_terms(d, names, self.shape)) or "0" for d in self.dims)

    def __str__(self) -> str:
        return f"({', '.join(self.index_names)}) -> ({', '.join(self.terms)})"

    def _digit_text(self, digit: Digit) -> str:
        name = _AXIS_NAMES[digit.axis] if digit.axis < 26 else f"x{digit.axis}_"
        if digit.extent == self.shape[digit.axis]:
            return name
        cut = isinstance(digit.extent, int) and digit.stride * digit.extent != self.shape[digit.axis]
        return name + (f"/{digit.stride}" if digit.stride > 1 else "") + (f"%{digit.extent}" if cut else "")

    def _check_bijective(self) -> None:
        reached: dict[int, list[Digit]] = {a: [] for a in range(len(self.shape))}
        for digits in self.dims:
            for digit in digits:
                if digit.axis not in reached:
                    raise LayoutError(f"digit {tuple(digit)} names an axis that shape {self.shape} does not have")
                reached[digit.axis].append(digit)
        for axis, own in reached.items():
            stride: Extent = 1
            for digit in sorted(own, key=lambda d: d.stride):
                if digit.stride != stride:
                    raise LayoutError(f"not a bijection: the digits of axis {axis} of {self.shape} don't tile it")
                stride = digit.extent if isinstance(digit.extent, str) else digit.stride * digit.extent
            if stride != self.shape[axis]:
                raise LayoutError(f"not a bijection: the digits of axis {axis} cover {stride} of {self.shape[axis]}")


@lru_cache(4096)  # asked for every buffer of every flow
def _identity(shape: tuple[Extent, ...], types: tuple[type, ...]) -> IndexMap:
    """``types`` of the extents: one of NumPy is equal to an integer, and is none."""
    return IndexMap.permutation(shape, range(len(shape)))


def _canonical(dims: Iterable[Iterable[tuple[int, int, Extent]]]) -> Dims:
    result: list[tuple[Digit, ...]] = []
    for digits in dims:
        row: list[Digit] = []
        for axis, stride, extent in digits:
            if extent == 1:
                continue
            last = row[-1] if row else None
            if (
                last is not None
                and isinstance(extent, int)
                and isinstance(last.extent, int)
                and (last.axis, last.stride) == (axis, stride * extent)
            ):
                row[-1] = Digit(axis, stride, last.extent * extent)
            else:
                row.append(Digit(axis, stride, extent))
        result.append(tuple(row))
    return tuple(result)


def slice_of_digits(digits: Sequence[Digit], stride: int, extent: Extent) -> list[Digit] | None:
    """The digits of ``value // stride % extent``, value being the number that ``digits`` write; None if cut."""
    if isinstance(extent, str):
        return list(digits) if len(digits) == 1 and digits[0].extent == extent else _whole(digits, extent)
    if extent == 0 or any(digit.extent == 0 for digit in digits):  # no element says which digit is which
        return list(digits) if stride == 1 and extent_product(d.extent for d in digits) == extent else None
    weight = 1
    low, high = stride, stride * extent
    found: list[Digit] = []
    for digit in reversed(digits):
        if isinstance(digit.extent, str):
            return None
        first, last = max(weight, low), min(weight * digit.extent, high)
        if first < last:
            if first % weight or last % first or (weight * digit.extent) % last:
                return None
            found.append(Digit(digit.axis, digit.stride * (first // weight), last // first))
        weight *= digit.extent
    return found[::-1] if high <= weight else None


def _whole(digits: Sequence[Digit], extent: str) -> list[Digit] | None:
    return list(digits) if extent_product(d.extent for d in digits) == extent else None


def _take_from_end(flat: list[Digit], extent: Extent) -> list[Digit] | None:
    """Removes from the end of ``flat`` the digits that make up ``extent``; None if they can't be cut there."""
    taken: list[Digit] = []
    if isinstance(extent, str):
        for count in range(1, len(flat) + 1):
            if extent_product(d.extent for d in flat[-count:]) == extent:
                taken = flat[-count:]
                del flat[-count:]
                return taken
        return None
    rest = extent
    while rest != 1:
        if not flat or isinstance(flat[-1].extent, str):
            return None
        last = flat.pop()
        assert isinstance(last.extent, int)
        common = math.gcd(rest, last.extent)
        if common not in (rest, last.extent):
            return None
        taken.insert(0, Digit(last.axis, last.stride, common))
        if common < last.extent:
            flat.append(Digit(last.axis, last.stride * common, last.extent // common))
        rest //= common
    return taken


def _scaled_terms(digits: Sequence[Digit], names: Sequence[str], shape: Sequence[Extent]) -> list[str]:
    terms: list[str] = []
    weights: list[Extent] = []
    weight: Extent = 1
    for digit in reversed(digits):
        weights.append(weight)
        weight = extent_product([weight, digit.extent])
    for digit, scale in zip(digits, reversed(weights), strict=True):
        text = names[digit.axis]
        if digit.extent != shape[digit.axis]:
            text += f"//{digit.stride}" if digit.stride > 1 else ""
            if isinstance(digit.extent, int) and digit.stride * digit.extent != shape[digit.axis]:
                text += f"%{digit.extent}"
        terms.append(text if scale == 1 else f"{text}*{scale}")
    return terms
