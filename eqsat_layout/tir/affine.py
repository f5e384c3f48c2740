"""Index expressions as sums of weighted digits of iteration variables.

In: a tirx integer expression and the extents of the variables in it. Out: an :class:`Affine`, which has the same value
for every assignment within the extents, or ``None`` where the expression is not of that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from eqsat_layout.cached_property import cached_property
from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import Digit, Extent, extent_product
from eqsat_layout.tir.extents import extent_of, extent_over


class Term(NamedTuple):
    """``weight * (iter // stride % extent)``. A symbolic extent is that of the whole variable, or of its top digit."""

    weight: int
    iter: int
    stride: int
    extent: Extent


@dataclass(frozen=True)
class Affine:
    """``sum(terms) + constant``. Terms are sorted, heaviest first, and adjacent digits are joined: ``==`` compares."""

    terms: tuple[Term, ...]
    constant: int = 0

    @cached_property
    def iters(self) -> tuple[int, ...]:
        """The iteration variables that the value depends on."""
        return tuple(dict.fromkeys(t.iter for t in self.terms))

    def is_plain(self, extents: Sequence[Extent]) -> bool:
        """The value is one iteration variable as it stands."""
        return self.shift_of(extents) is not None and not self.constant

    def shift_of(self, extents: Sequence[Extent]) -> int | None:
        """The iteration variable ``v`` if the value is ``v + constant``."""
        if len(self.terms) != 1:
            return None
        weight, axis, stride, extent = self.terms[0]
        return axis if (weight, stride) == (1, 1) and extent == extents[axis] else None

    def digits(self) -> tuple[Digit, ...] | None:
        """The mixed-radix number that the value writes, most significant first; ``None`` if it has gaps."""
        if self.constant:
            return None
        place: Extent = 1
        digits: list[Digit] = []
        for weight, axis, stride, extent in reversed(self.terms):
            if weight != place:
                return None
            digits.append(Digit(axis, stride, extent))
            place = extent if isinstance(extent, str) else weight * extent
        return tuple(reversed(digits))

    def renumbered(self, numbers: Mapping[int, int]) -> Affine:
        """The same sum with every iteration variable ``i`` called ``numbers[i]``."""
        return summed([t._replace(iter=numbers[t.iter]) for t in self.terms], self.constant)


class AffineReader:
    """Reads expressions over one list of iteration variables. Build one per block; it holds an analyzer.

    ``variables`` are the TVM variables, ``extents[i]`` the extent of variable ``i``, which starts at 0.
    """

    def __init__(self, variables: Sequence[Any], extents: Sequence[Extent], ranges: Sequence[Any]) -> None:
        self._numbers = {hash(v): i for i, v in enumerate(variables)}  # TVM's own == makes an expression first
        self._variables = variables
        self._extents = extents
        self._ranges = ranges
        self._analyzer: Any = None

    def number(self, variable: Any) -> int | None:
        """The position of a TVM variable among the iteration variables."""
        return self._numbers.get(hash(variable))

    def read(self, expr: Any) -> Affine | None:
        """The sum that equals ``expr``. A variable of extent 1 keeps its name only when it stands alone."""
        # the engine alone is exact and quick; the analyzer helps where an expression has to be rearranged first
        found = self.read_as_written(expr)
        return found if found is not None or type(expr) is tvm.ir.Var else self._walk(self.simplify(expr))

    def read_as_written(self, expr: Any) -> Affine | None:
        """The same where nothing has to be rearranged: no matter how wide the variables are."""
        kind = type(expr)
        if kind is tirx.IntImm:
            return Affine((), int(expr.value))
        return self._variable(expr) if kind is tvm.ir.Var else self._walk(expr)

    def simplify(self, expr: Any) -> Any:
        """``expr`` as the analyzer simplifies it, with the ranges of the variables known."""
        if self._analyzer is None:
            self._analyzer = tvm.sym.Analyzer()
            for variable, extent_range in zip(self._variables, self._ranges, strict=True):
                self._analyzer.bind(variable, extent_range)
        return self._analyzer.simplify(expr)

    def _variable(self, expr: Any) -> Affine | None:
        number = self._numbers.get(hash(expr))
        return None if number is None else Affine((Term(1, number, 1, self._extents[number]),))

    def _walk(self, expr: Any) -> Affine | None:
        kind = type(expr)
        if kind is tvm.ir.Var or kind is tirx.IntImm:
            leaf = self._variable(expr) if kind is tvm.ir.Var else Affine((), int(expr.value))
            return leaf and summed(leaf.terms, leaf.constant)
        if kind is tirx.Cast:
            return self._walk(expr.value) if _widens(expr) else None
        if kind not in _BINARY:
            return None
        a, b = self._walk(expr.a), self._walk(expr.b)
        if a is None or b is None:
            return _divide_by_extent(a, expr) if a is not None and kind in _DIVISIONS else None
        if kind is tirx.Add:
            return summed([*a.terms, *b.terms], a.constant + b.constant)
        if kind is tirx.Sub:
            return summed([*a.terms, *_scaled(b.terms, -1)], a.constant - b.constant)
        if a.terms and b.terms:
            return None
        if kind is tirx.Mul:
            factor, value = (a.constant, b) if b.terms else (b.constant, a)
            return summed(_scaled(value.terms, factor), value.constant * factor)
        return None if b.terms else divided(a, b.constant, kind)


_DIVISIONS = frozenset((tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod))
_BINARY = _DIVISIONS | {tirx.Add, tirx.Sub, tirx.Mul}


def _widens(cast: Any) -> bool:
    source, target = str(cast.value.ty.dtype), str(cast.ty.dtype)
    return source == target or (source, target) == ("int32", "int64")


def _scaled(terms: Sequence[Term], factor: int) -> list[Term]:
    return [t._replace(weight=t.weight * factor) for t in terms]


def digit_of(value: Affine, stride: int, extent: Extent, size: Extent) -> Affine | None:
    """``value // stride % extent`` of a value below ``size``; None where the radices don't divide."""
    if extent == size:
        return value
    high = divided(value, stride, tirx.FloorDiv) if stride > 1 else value
    if high is None or isinstance(extent, str) or stride * extent == size:
        return high
    return divided(high, extent, tirx.FloorMod)


def number_of_digits(
    digits: Sequence[Digit], values: Sequence[Affine | None], sizes: Sequence[Extent]
) -> Affine | None:
    """The number that ``digits`` of ``values`` write, value ``i`` being below ``sizes[i]``; None if it is no sum."""
    terms: list[Term] = []
    constant, place = 0, 1
    for axis, stride, extent in reversed(digits):
        value = values[axis]
        part = None if value is None else digit_of(value, stride, extent, sizes[axis])
        if part is None or place == 0:
            return None
        terms.extend(t._replace(weight=t.weight * place) for t in part.terms)
        constant += part.constant * place
        place = place * extent if isinstance(extent, int) else 0  # only an outermost digit may be symbolic
    return summed(terms, constant)


def high_bound(value: Affine, bound: int) -> tuple[Affine, int] | None:
    """``(h, c)`` with ``bound <= value`` just where ``c <= h``, ``h`` being ``value`` without its low digits."""
    bound -= value.constant
    for weight in sorted({t.weight for t in value.terms}, reverse=True):
        low = [t for t in value.terms if t.weight % weight]
        if weight < 2 or bound % weight or any(t.weight < 0 or isinstance(t.extent, str) for t in low):
            continue
        if sum(t.weight * (int(t.extent) - 1) for t in low) < weight:
            high = divided(Affine(tuple(t for t in value.terms if t not in low)), weight, tirx.FloorDiv)
            return None if high is None else (high, bound // weight)
    return None


def is_injective(value: Affine) -> bool:
    """Different digits give different values: every weight exceeds all that the lighter terms add up to."""
    reach: int | None = 0
    for weight, _, _, extent in sorted(value.terms, key=lambda t: abs(t.weight)):
        if extent == 1:
            continue
        if reach is None or abs(weight) <= reach:
            return False
        reach = reach + abs(weight) * (extent - 1) if isinstance(extent, int) else None
    return True


def summed(terms: Sequence[Term], constant: int) -> Affine:
    """The canonical sum: equal digits added up, adjacent digits of one variable joined, sorted."""
    if len(terms) < 2:
        return Affine(tuple(t for t in terms if t.weight and t.extent != 1), constant)
    weights: dict[tuple[int, int, Extent], int] = {}
    for weight, axis, stride, extent in terms:
        if extent != 1:
            key = (axis, stride, extent)
            weights[key] = weights.get(key, 0) + weight
    ordered = sorted((Term(w, *key) for key, w in weights.items() if w), key=lambda t: (t.iter, t.stride))
    joined: list[Term] = []
    for term in ordered:
        low = joined[-1] if joined else None
        if (
            low is not None
            and low.iter == term.iter
            and isinstance(low.extent, int)
            and isinstance(term.extent, int)
            and term.stride == low.stride * low.extent
            and term.weight == low.weight * low.extent
        ):
            joined[-1] = low._replace(extent=low.extent * term.extent)
        else:
            joined.append(term)
    return Affine(tuple(sorted(joined, key=lambda t: (-t.weight, t.iter, t.stride))), constant)


def divided(value: Affine, divisor: int, kind: Any) -> Affine | None:
    """``value`` over ``divisor``: each digit is cut where the radices divide; what is left below must not carry."""
    if divisor <= 0:
        return None
    if kind in (tirx.Div, tirx.Mod) and (value.constant < 0 or any(t.weight < 0 for t in value.terms)):
        return None  # truncation is the floor of what is not negative only
    high: list[Term] = []
    low: list[Term] = []
    for term in value.terms:
        weight, axis, stride, extent = term
        if weight % divisor == 0:
            high.append(term._replace(weight=weight // divisor))
            continue
        if weight < 0:
            return None
        if isinstance(extent, int) and weight * extent <= divisor:
            low.append(term)
            continue
        cut, uncut = divmod(divisor, weight)
        top = None if uncut else extent_over(extent, cut)
        if top is None:
            return None
        high.append(Term(1, axis, stride * cut, top))
        low.append(Term(weight, axis, stride, cut))
    quotient, remainder = divmod(value.constant, divisor)
    if remainder + sum(t.weight * (int(t.extent) - 1) for t in low) >= divisor:
        return None
    return summed(low, remainder) if kind in (tirx.FloorMod, tirx.Mod) else summed(high, quotient)


def _divide_by_extent(value: Affine, expr: Any) -> Affine | None:
    """A number below a symbolic extent, divided by that extent: 0, and itself as the rest."""
    digits = value.digits()
    try:
        divisor = extent_of(expr.b)
    except LayoutError:
        return None
    if digits is None or extent_product(d.extent for d in digits) != divisor:
        return None
    return value if type(expr) in (tirx.FloorMod, tirx.Mod) else Affine((), 0)
