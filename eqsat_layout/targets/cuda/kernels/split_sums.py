"""Sums that several blocks share: each leaves its part in memory, and the last one to come adds them up.

In: a block's sums in registers, its tile and its part of the steps. Out: statements after which one block of a tile,
whichever was last, has the whole sums. Parts are added in their order, so results are the same every time. Blocks
that have come are counted in memory of zeros, which the last one leaves as it was: for the next run, and for the next
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.cuda.kernels.extents import Extent
from eqsat_layout.targets.cuda.kernels.statements import (
    at,
    block_barrier,
    counted_arrival,
    device_fence,
    guarded,
    kept,
    loop,
    number,
    sequence_of,
    vectorized,
)
from eqsat_layout.targets.gpu.host.plan import ZEROS
from eqsat_layout.targets.schedules.accesses import as_int

_TOGETHER: Final = 4
"""Sums of a thread that are stored as one: 16 bytes."""


@dataclass(frozen=True)
class Parts:
    """Of the sums of a tile: how many, the place of this block's own in memory, and that of each in their order."""

    count: Extent
    own: Any
    place: Callable[[Any], Any]


class SplitSums:
    """Of ``tiles``; there are ``places`` for parts, from a block of ``threads`` each. ``sums``: a thread's.

    A tile whose sums have one part, as known at run time, leaves nothing in memory.
    """

    def __init__(self, places: Extent, tiles: Extent, threads: int, sums: Any) -> None:
        self._sums = sums
        self._vectors = int(sums.ty.shape[0]) // _TOGETHER
        shape = [places, self._vectors, threads, _TOGETHER]  # the threads of a warp side by side
        self._parts = _memory(shape, str(sums.ty.dtype), "parts")
        self._arrived = _memory([tiles], "int32", "arrived")
        self._before = tirx.decl_buffer([number(1)], "int32", "before", scope="shared", layout=None)

    def allocated(self) -> list[Any]:
        """What the host allocates."""
        return [tirx.AllocBuffer(self._parts), tirx.AllocBuffer(self._arrived, annotations={ZEROS: True})]

    def allocated_in_block(self) -> Any:
        """What stands in front of :meth:`in_last_block`."""
        return tirx.AllocBuffer(self._before)

    def in_last_block(self, of_tile: Parts, tile: Any, thread: Any, body: Any) -> Any:
        """``body`` where all parts have come, with the whole sums.

        One thread's fence, between barriers, is for all of its block: before it counts for what they stored, and after
        it for what they are about to load.
        """

        def each(statement: Callable[[Any, Sequence[Any]], Any]) -> Any:
            """Of a sum's register and its place in a part."""

            def vector(number: Any) -> Any:
                return vectorized(_TOGETHER, lambda lane: statement(number * _TOGETHER + lane, (number, thread, lane)))

            return loop(self._vectors, vector, tirx.ForKind.UNROLLED)

        def add(other: Any) -> Any:
            return each(lambda own, place: kept(sums, at(sums, own) + at(parts, of_tile.place(other + 1), *place), own))

        sums, parts = self._sums, self._parts
        count = sequence_of([device_fence(), counted_arrival(self._before, self._arrived, tile), device_fence()])
        left = [
            each(lambda own, place: kept(parts, at(sums, own), of_tile.own, *place)),
            block_barrier(),
            guarded(thread.equal(0), count),
            block_barrier(),
        ]
        added = [
            guarded(thread.equal(0), kept(self._arrived, number(0), tile)),
            each(lambda own, place: kept(sums, at(parts, of_tile.place(number(0)), *place), own)),
            loop(of_tile.count - 1, add),
        ]
        is_last = at(self._before, 0).equal(of_tile.count - 1)
        if as_int(of_tile.count) is not None:
            rest = [*left, guarded(is_last, sequence_of([*added, body]))]
        else:
            is_split = of_tile.count > 1
            own = [guarded(is_split, sequence_of(added)), body]
            is_mine = tirx.Or(tirx.Not(is_split), is_last)
            rest = [guarded(is_split, sequence_of(left)), guarded(is_mine, sequence_of(own))]
        return sequence_of(rest)


def _memory(shape: list[Extent], dtype: str, name: str) -> Any:
    return tirx.decl_buffer([number(extent) for extent in shape], dtype, name, layout=None)
