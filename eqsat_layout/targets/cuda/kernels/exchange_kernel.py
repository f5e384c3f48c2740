"""Layout transforms at the speed of memory: tiles are read along one axis and written along another.

In: a PrimFunc of one elementwise nest whose large operand lies along other axes than its result. Out: a PrimFunc
without blocks that launches one kernel. A block takes a tile through shared memory, so neighbouring threads read
neighbours and write neighbours; rows of the tile are so far apart that neither meets in a bank. Refused: where what is
read lies along the result already, or several operands lie each their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.extents import assumed, is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes
from eqsat_layout.targets.cuda.kernels.products import is_one, narrowed
from eqsat_layout.targets.cuda.kernels.statements import (
    LANES,
    all_of,
    at,
    block_barrier,
    guarded,
    kept,
    launched,
    number,
    sequence_of,
)
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest, nests_of, without_inlined_nests
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int, quotient, remainder
from eqsat_layout.targets.schedules.exact_values import with_hidden_arithmetic
from eqsat_layout.tir.structural import substitute

_THREADS: Final = 256
_SHORT: Final = 4
"""Elements along an axis that are not worth a tile."""


def exchange_kernel(func: Any) -> Any:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is no such nest."""
    func = narrowed(func)
    nests = without_inlined_nests(nests_of(with_hidden_arithmetic(func)), list(func.params))
    if len(nests) != 1 or nests[0].reduced or len(nests[0].stores) != 1:
        raise Refused("it is no single elementwise nest")
    (nest,) = nests
    if any(as_int(axis.extent) == 0 for axis in nest.spatial):
        raise Refused("it has no elements")
    return func.with_body(_Exchange(nest).launch())


class _Exchange:
    """``along``: the axes that the result lies along; ``across``: those that the operand does; ``others``: the rest.

    A tile has ``width`` elements along and ``height`` across: an element for each thread at least.
    """

    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        (self._store,) = nest.stores
        result = StageAccess(self._store.buffer, tuple(self._store.indices))
        loads = [StageAccess(load.source, tuple(load.indices)) for load in nest.loads()]
        axes = [axis for axis in nest.spatial if not is_one(axis)]
        large = [load for load in loads if all(load.uses(axis.var) for axis in axes)]
        ways = {tuple(axis.var.name for axis in axes if load.stride(axis.var) == 1) for load in large}
        if not axes or len(ways) != 1:
            raise Refused("no operand of its size, or several that lie each their own way")
        if any(large[0].stride(axis.var) == 1 == result.stride(axis.var) for axis in axes):
            raise Refused("it lies along the result already")
        ends = [axis for axis in axes if result.stride(axis.var) == 1]
        across = _together(large[0], axes, ends)
        along = _together(result, axes, across)
        self._along, self._across = FlatAxes(along), FlatAxes(across)
        if min(assumed(self._along.extent), assumed(self._across.extent)) < _SHORT:
            raise Refused("so few elements lie together that tiles are of no use")
        taken = {axis.var for axis in (*along, *across)}
        self._others = FlatAxes(tuple(axis for axis in axes if axis.var not in taken))
        self._fixed = {axis.var: number(0) for axis in nest.spatial if is_one(axis)}
        self._width = next(n for n in (4, 8, 16, LANES) if n >= min(LANES, assumed(self._along.extent)))
        self._height = max(LANES, _THREADS // self._width)
        words = max(1, 32 // tvm.DataType(str(self._store.buffer.ty.dtype)).bits)  # elements of a word
        self._pitch = self._height + words * (LANES // self._width)

    def launch(self) -> Any:
        tiles = [tiles_over(self._along.extent, self._width), tiles_over(self._across.extent, self._height)]
        count = product_of_extents((self._others.extent, *tiles))
        dtype, size = str(self._store.buffer.ty.dtype), self._width * self._pitch
        tile = tirx.decl_buffer([number(size)], dtype, "tile", scope="shared", layout=None)

        def body(grid: Any, thread: Any) -> Any:
            rest, second = quotient(grid[0], tiles[1]), remainder(grid[0], tiles[1])
            other, first = quotient(rest, tiles[0]), remainder(rest, tiles[0])

            def read(here: Any, there: Any) -> Any:
                places = self._places(other, first, second, here, there)
                value = substitute(self._store.value, places)
                return kept(tile, value, here * self._pitch + there)

            def write(here: Any, there: Any) -> Any:
                places = self._places(other, first, second, here, there)
                indices = [tvm.sym.Analyzer().simplify(substitute(index, places)) for index in self._store.indices]
                return tirx.BufferStore(self._store.buffer, at(tile, here * self._pitch + there), indices)

            across_first = self._elements(first, second, thread, read, is_across=True)
            along_first = self._elements(first, second, thread, write, is_across=False)
            return sequence_of([tirx.AllocBuffer(tile), across_first, block_barrier(), along_first])

        return launched((count,), _THREADS, body)

    def _elements(
        self, first: Any, second: Any, thread: Any, body: Callable[[Any, Any], Any], *, is_across: bool
    ) -> Any:
        """Those of a tile, neighbouring threads at neighbours across or along."""

        def turn(index: int) -> Any:
            element = thread + index * _THREADS
            fast, slow = (tirx.floormod, tirx.floordiv)
            if is_across:
                here, there = slow(element, self._height), fast(element, self._height)
            else:
                here, there = fast(element, self._width), slow(element, self._width)
            inside = [
                at < extent
                for at, extent, size in (
                    (first * self._width + here, self._along.extent, self._width),
                    (second * self._height + there, self._across.extent, self._height),
                )
                if not is_whole_tiles(extent, size)
            ]
            return guarded(all_of(inside), body(here, there))

        return sequence_of(turn(index) for index in range(self._width * self._height // _THREADS))

    def _places(self, other: Any, first: Any, second: Any, here: Any, there: Any) -> Mapping[Any, Any]:
        return {
            **self._fixed,
            **self._others.at(other),
            **self._along.at(first * self._width + here),
            **self._across.at(second * self._height + there),
        }


def _together(access: StageAccess, axes: Sequence[Axis], but: Sequence[Axis]) -> tuple[Axis, ...]:
    """Axes that elements lie along in one piece, the last one fastest: as many as fill a row of a tile."""
    found: list[Axis] = []
    size = 1
    left = [axis for axis in axes if not any(axis.var.same_as(one.var) for one in but)]
    while size < LANES:
        following = next((axis for axis in left if access.stride(axis.var) == size), None)
        if following is None:
            break
        found.insert(0, following)
        left.remove(following)
        size *= assumed(following.extent)
    return tuple(found)
