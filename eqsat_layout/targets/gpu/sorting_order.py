"""How the elements of a tensor follow one another along an axis: each counts those that come before it.

In: a tensor of TE. Out: where the elements of its sorted rows come from, and these elements, as tensors of TE. Equal
elements keep their order, and NaN is the largest number, so that each place has one element, whatever the data are. A
row of n elements has n * n pairs compared, all at once.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx


class SortingOrder:
    """Of ``x`` along ``axis``. ``counts``: for each row how many of its first elements are sorted; the others stay."""

    def __init__(self, x: Any, axis: int, is_descending: bool, counts: Any = None) -> None:
        self.x, self.axis = x, axis % len(x.shape)
        extent = x.shape[self.axis]
        before = te.reduce_axis((0, extent), "before")

        def rank(*at: Any) -> Any:
            own, other = x(*at), x(*self._moved(at, before))
            comes_first = is_less(own, other) if is_descending else is_less(other, own)
            is_earlier = tirx.And(is_same(own, other), before < at[self.axis])
            counted = self._is_sorted(counts, at, before, tirx.Or(comes_first, is_earlier))
            return te.sum(tirx.Cast("int32", counted), axis=before)

        ranks = te.compute(x.shape, rank, "ranks")
        place = te.reduce_axis((0, extent), "place")

        def source(*at: Any) -> Any:
            is_here = ranks(*self._moved(at, place)).equal(tirx.Cast("int32", at[self.axis]))
            is_here = self._is_sorted(counts, at, place, is_here)
            return te.sum(tirx.Select(is_here, tirx.Cast("int32", place), tirx.IntImm("int32", 0)), axis=place)

        self._source, self._counts = source, counts
        self._found: dict[tuple[str, ...], Any] = {}

    def places(self, shape: Any, dtype: str) -> Any:
        """Where the first ones come from."""
        found = self._found_in(shape)
        if dtype == "int32" and self._counts is None:
            return found

        def place(*at: Any) -> Any:
            own = tirx.Cast(dtype, found(*at)) if dtype != "int32" else found(*at)
            if self._counts is None:
                return own
            here = at[self.axis]
            is_sorted = here < self._counts(*at[: self.axis]).astype(str(here.ty.dtype))
            return tirx.Select(is_sorted, own, tirx.Cast(dtype, here))

        return te.compute(shape, place, "indices")

    def values(self, shape: Any) -> Any:
        """The first ones."""
        places = self.places(shape, "int32")
        return te.compute(shape, lambda *at: self.x(*self._moved(at, places(*at))), "sorted")

    def _found_in(self, shape: Any) -> Any:
        """Once for values and places of one shape."""
        key = tuple(map(str, shape))
        if key not in self._found:
            self._found[key] = te.compute(shape, self._source, "places")
        return self._found[key]

    def _moved(self, at: Any, place: Any) -> list[Any]:
        return [place if i == self.axis else index for i, index in enumerate(at)]

    def _is_sorted(self, counts: Any, at: Any, place: Any, condition: Any) -> Any:
        """``condition``, of an element that is sorted with others."""
        if counts is None:
            return condition
        dtype = str(place.var.ty.dtype)
        return tirx.And(place.var < counts(*at[: self.axis]).astype(dtype), condition)


def is_less(a: Any, b: Any) -> Any:
    """NaN is the largest number."""
    return tirx.Or(a < b, tirx.And(tirx.isnan(b), tirx.Not(tirx.isnan(a)))) if _is_float(a) else a < b


def is_same(a: Any, b: Any) -> Any:
    """NaN is equal to itself."""
    return tirx.Or(a.equal(b), tirx.And(tirx.isnan(a), tirx.isnan(b))) if _is_float(a) else a.equal(b)


def _is_float(value: Any) -> bool:
    return "float" in str(value.ty.dtype)
