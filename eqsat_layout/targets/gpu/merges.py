"""Long sorts: pieces of a row are sorted by counting, and merged two by two, all places at once.

In: a tensor of TE. Out: where the elements of its sorted rows come from, one tensor of TE for each launch. A place of a
merged row finds by bisection how many elements of its first half come before it: a launch for each time that pieces
double, in which each place takes some log(n) steps, in the place of n. Equal elements keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from eqsat_layout.targets.gpu.sorting_order import is_less, is_same
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.extents import unravelled

LONG: Final = 2048
"""Elements of a row; of shorter ones all pairs are compared in less time than the launches of merges take (assumed)."""
PIECE: Final = 256
"""Elements that are sorted by counting."""


@dataclass(frozen=True)
class MergedOrder:
    """Of ``x`` along ``axis``, whose sorted rows come from ``found``."""

    x: Any
    axis: int
    found: Any

    def places(self, shape: Any, dtype: str) -> Any:
        """Where the first ones come from."""
        return te.compute(shape, lambda *at: self.found(*at).astype(dtype), "indices")

    def values(self, shape: Any) -> Any:
        """The first ones."""
        return te.compute(shape, lambda *at: self.x(*_moved(at, self.axis, self.found(*at))), "sorted")


def has_long_rows(shape: Sequence[Any], axis: int) -> bool:
    """A row has more than :data:`LONG` elements, and how many there are in all is known."""
    known = list(map(as_int, shape))
    return None not in known and (known[axis] or 0) > LONG


def steps_of_sort(extent: int, axis: int, is_descending: bool) -> Iterator[Callable[..., Any]]:
    """From a tensor to places, and then from the tensor and places to places, one after the other."""

    def sort_pieces(x: Any) -> Any:
        return _sorted_pieces(x, axis, is_descending)

    yield sort_pieces
    for doubled in range(math.ceil(math.log2(extent / PIECE))):

        def merge(x: Any, places: Any, length: int = PIECE << doubled) -> Any:
            return _merged(x, places, axis, length, is_descending)

        yield merge


def _sorted_pieces(x: Any, axis: int, is_descending: bool) -> Any:
    """Where the elements of each piece come from."""
    extent = x.shape[axis]
    before, from_ = te.reduce_axis((0, PIECE), "before"), te.reduce_axis((0, PIECE), "from")

    def other(at: Any, number: Any) -> tuple[Any, list[Any]]:
        """The place of that number in the piece, and its indices, or those of another where there is none."""
        place = at[axis] // PIECE * PIECE + number
        return place, _moved(at, axis, tirx.min(place, extent - 1))

    def rank(*at: Any) -> Any:
        place, indices = other(at, before)
        own, beside = x(*at), x(*indices)
        is_earlier = tirx.And(is_same(own, beside), place < at[axis])
        counted = tirx.Or(_comes_first(beside, own, is_descending), is_earlier)
        return te.sum(tirx.Cast("int32", tirx.And(place < extent, counted)), axis=before)

    ranks = te.compute(x.shape, rank, "ranks")

    def source(*at: Any) -> Any:
        place, indices = other(at, from_)
        is_here = tirx.And(place < extent, ranks(*indices).equal(tirx.Cast("int32", at[axis] % PIECE)))
        return te.sum(tirx.Select(is_here, tirx.Cast("int32", place), tirx.IntImm("int32", 0)), axis=from_)

    return te.compute(x.shape, source, "places")


def _merged(x: Any, places: Any, axis: int, length: int, is_descending: bool) -> Any:
    """Of rows whose pieces of that length are sorted, those of twice the length are."""

    def merge(x: Any, places: Any, result: Any) -> Any:
        shape = [int(extent) for extent in x.shape]

        def source(at: list[Any], place: Any) -> Any:
            return tirx.BufferLoad(places, _moved(at, axis, place))

        def comes_first(at: list[Any], one: Any, other: Any) -> Any:
            own, beside = (tirx.BufferLoad(x, _moved(at, axis, source(at, place))) for place in (one, other))
            return _comes_first(own, beside, is_descending)

        with IRBuilder() as builder:
            with T.parallel(0, math.prod(shape)) as flat:
                least, most = (T.buffer_proxy(T.decl_buffer([1], "int32", scope="local")) for _ in range(2))
                at = unravelled(flat, shape)
                begin = at[axis] // (2 * length) * (2 * length)
                middle, end = (tirx.min(begin + size, shape[axis]) for size in (length, 2 * length))
                count = at[axis] - begin
                least[0] = tirx.max(count - (end - middle), 0)
                most[0] = tirx.min(count, middle - begin)
                with T.While(least[0] < most[0]):
                    half = (least[0] + most[0]) // 2
                    with T.If(comes_first(at, middle + count - 1 - half, begin + half)):
                        with T.Then():
                            most[0] = half
                        with T.Else():
                            least[0] = half + 1
                first, second = begin + least[0], middle + count - least[0]
                is_second = tirx.if_then_else(second >= end, False, comes_first(at, second, first))
                is_second = tirx.if_then_else(first >= middle, True, is_second)
                T.buffer_store(result, source(at, tirx.if_then_else(is_second, second, first)), at)
            return builder.get()

    return te.extern(x.shape, [x, places], lambda ins, outs: merge(*ins, *outs), name="merged", dtype="int32")


def _comes_first(one: Any, other: Any, is_descending: bool) -> Any:
    return is_less(other, one) if is_descending else is_less(one, other)


def _moved(at: Any, axis: int, place: Any) -> list[Any]:
    return [place if i == axis else index for i, index in enumerate(at)]
