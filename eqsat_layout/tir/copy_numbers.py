"""Numbers whose digits index what a block copies.

In: the indices of a read and its conditions. Out: the choices of :class:`Number` that may be meant, and the indices as
sums over iteration variables and those numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat_layout.maps import Digit, Extent
from eqsat_layout.tir.affine import Affine, Term, digit_of, summed
from eqsat_layout.tir.computation import Index, Opaque, Value
from eqsat_layout.tir.copy_digits import NotACopyError, known, terms_of, values_of_digits
from eqsat_layout.tir.index_values import COMPARISONS, affine_of, combined, divided_sums


@dataclass(frozen=True)
class Number:
    """A number written by digits of iteration variables that stands for ``number + shift`` of ``room`` elements."""

    digits: tuple[Digit, ...]
    shift: int
    room: int

    @property
    def extent(self) -> int:
        return values_of_digits(self.digits)


@dataclass(frozen=True)
class NumberedIndices:
    """Indices over a block's iteration variables, of ``extents``, read as indices over them and ``numbers``."""

    extents: tuple[Extent, ...]
    numbers: Sequence[Number]

    def read(self, index: Index) -> Affine:
        """The index as a sum over iteration variables and, numbered behind them, the numbers."""
        value = self._evaluated(index.value) if isinstance(index, Opaque) else self._renamed(index)
        if value is None:
            raise NotACopyError
        return value

    def _evaluated(self, value: Value) -> Affine | None:
        plain = affine_of(value, self.extents)
        if plain is not None and (renamed := self._renamed(plain)) is not None:
            return renamed
        if len(value.args) != 2:
            return None
        return combined(value.op, self._evaluated(value.args[0]), self._evaluated(value.args[1]))

    def _renamed(self, value: Affine) -> Affine | None:
        """``value`` with digits of a number instead of the iteration variables that write it."""
        for k, number in enumerate(self.numbers):
            iters = {d.axis for d in number.digits}
            own = [t for t in value.terms if t.iter in iters]
            if not own:
                continue
            part = self._slice(own, number, len(self.extents) + k)
            if part is None:
                return None
            rest = [t for t in value.terms if t.iter not in iters]
            value = summed([*rest, *part.terms], value.constant + part.constant)
        return value

    def _slice(self, own: Sequence[Term], number: Number, name: int) -> Affine | None:
        """Terms that are a slice of the number, times a weight."""
        weight = min(t.weight for t in own)
        digits = Affine(tuple(t._replace(weight=t.weight // weight) for t in own)).digits()
        if weight < 1 or digits is None or any(t.weight % weight for t in own):
            return None
        extent, whole = values_of_digits(digits), summed(terms_of(number.digits), 0)
        for place in range(1, number.extent // extent + 1):
            if number.extent % place == 0:
                part = digit_of(whole, place, extent, number.extent)
                if part is not None and part.digits() == digits:
                    return self._part(number, name, weight, place, extent)
        return None

    def _part(self, number: Number, name: int, weight: int, place: int, extent: int) -> Affine | None:
        if place * extent == number.extent:  # the top: what is shifted may reach above it
            if number.shift % place or number.room % place:
                return None
            return Affine((Term(weight, name, place, number.room // place),), -weight * (number.shift // place))
        if number.shift % (place * extent) or number.room % (place * extent):
            return None
        return Affine((Term(weight, name, place, extent),))


@dataclass(frozen=True)
class NumberFinder:
    """Finds numbers that are cut short, as in ``(c // 4, c % 4)`` with ``c < 30``.

    ``shape`` and ``indices``: of what is read; ``extents``: of the iteration variables; ``conditions``: of the read.
    """

    shape: tuple[Extent, ...]
    indices: tuple[Index, ...]
    extents: tuple[Extent, ...]
    conditions: tuple[tuple[Value, bool], ...]

    def choices(self) -> Iterator[list[Number]]:
        """What may be numbers: what is divided in the indices, shifted as it is there, then what is compared too."""
        divided: dict[tuple[Digit, ...], dict[int, None]] = {}
        for index in self.indices:
            for value in divided_sums(index.value, self.extents) if isinstance(index, Opaque) else ():
                digits, shift = self._completed(value)
                divided.setdefault(digits, {})[shift] = None
        compared: dict[tuple[Digit, ...], dict[int, None]] = {}
        for condition, _ in self.conditions:
            for side in (side for v in condition.walk() if v.op in COMPARISONS for side in v.args):
                bounded = affine_of(side, self.extents)
                digits = () if bounded is None else Affine(bounded.terms).digits() or ()
                if len(digits) > 1 and digits not in divided:
                    compared[digits] = {0: None}
        for found in (divided, divided | compared) if compared else (divided,):
            for shifts in itertools.product(*found.values()):
                yield [self._numbered(d, shift) for d, shift in zip(found, shifts, strict=True)]

    def _numbered(self, digits: tuple[Digit, ...], shift: int) -> Number:
        """Its room is what the source's axes that it writes leave to it."""
        iters = {d.axis for d in digits}
        axes = [i for i, index in enumerate(self.indices) if iters & set(index.iters)]
        others = {i for axis in axes for i in self.indices[axis].iters} - iters
        covered = math.prod(known(self.shape[axis]) for axis in axes)
        rest = math.prod(known(self.extents[i]) for i in others)
        if covered % rest:
            raise NotACopyError
        return Number(digits, shift, covered // rest)

    def _completed(self, value: Affine) -> tuple[tuple[Digit, ...], int]:
        """The whole number that ``value`` is the top of, and the shift against it."""
        digits = Affine(value.terms).digits()
        if not digits:
            raise NotACopyError
        last = digits[-1]
        if last.stride == 1:
            return digits, value.constant
        joined = Digit(last.axis, 1, known(last.extent) * last.stride)
        return (*digits[:-1], joined), value.constant * last.stride
