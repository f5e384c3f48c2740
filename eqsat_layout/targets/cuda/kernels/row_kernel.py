"""Rows in one launch: a block reduces a row and computes what depends on it, with nothing in memory between.

In: a PrimFunc whose nests all run over the same rows: sums or largest elements along a row, and elementwise nests that
read them (softmax, norms, means). Out: a PrimFunc without blocks that launches one kernel. A row's numbers are in
registers of all threads, its vectors in shared memory; sums are added up thread by thread, in an order that is the
same every time. Refused: rows that do not lie together in memory, where neighbouring threads would read far apart,
unless there are so few of them that a thread for each would leave the machine idle; and a few very long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.extents import Extent, assumed, is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes
from eqsat_layout.targets.cuda.kernels.products import is_one, narrowed
from eqsat_layout.targets.cuda.kernels.statements import (
    LANES,
    at,
    block_barrier,
    guarded,
    kept,
    launched,
    local,
    loop,
    number,
    sequence_of,
)
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest, made_again, nests_of, without_inlined_nests
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.targets.schedules.exact_values import with_hidden_arithmetic
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

_SHARED: Final = 48 << 10
"""Bytes of shared memory of fixed size."""
_FEW_ROWS: Final = 1 << 14
"""A thread for each of so many keeps a machine busy, about."""
_LONG: Final = 1 << 18
"""Elements that one block takes longer for than several launches take (assumed)."""
_FEW_LONG: Final = 32
"""Long rows, a block for each of which leaves the machine idle (assumed)."""
_UNKNOWN: Final = 1024
"""Elements of a row whose length is known at run time only, as they are assumed."""
_FULL: Final = tirx.IntImm("uint32", 0xFFFFFFFF)
_COMBINED: Final = (tirx.Add, tirx.Max, tirx.Min)
_FLOATS: Final = ("float32", "float16", "bfloat16")
"""Types of sums; threads add up in single precision."""


def row_kernel(func: Any) -> Any:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is not all over the same rows."""
    func = narrowed(func)
    nests = without_inlined_nests(nests_of(with_hidden_arithmetic(func)), list(func.params))
    reductions = [nest for nest in nests if nest.reduced]
    if not reductions:
        raise Refused("it reduces nothing")
    body, used = _Rows(func, nests, reductions[0]).launch()
    if used is None or used > _SHARED:  # what depends on an element is computed from it each time
        nests = made_again(nests, list(func.params))
        body, used = _Rows(func, nests, next(nest for nest in nests if nest.reduced)).launch()
    if used is None or used > _SHARED:
        raise Refused(f"a row needs {used or 'an unknown number of'} bytes of shared memory")
    return func.with_body(body)


class _Rows:
    """The leading axes of every nest say which row it is: one, or several whose places are numbered through."""

    def __init__(self, func: Any, nests: Sequence[Nest], first: Nest) -> None:
        self._nests, self._parameters = nests, list(func.params)
        axes = list(first.spatial)
        while axes and is_one(axes[-1]):
            axes.pop()
        self._rows = product_of_extents([axis.extent for axis in axes])
        self._counts = {nest.buffers[0]: self._leading(nest) for nest in nests}
        self._held: dict[Any, Any] = {}
        self._statements: list[Any] = []
        lengths = [FlatAxes(tuple(self._inner(nest))).extent for nest in nests]
        longest = max(_UNKNOWN if as_int(length) is None else length for length in lengths)
        if longest == 0 or as_int(self._rows) == 0:
            raise Refused("it has no elements")
        if longest < LANES:
            raise Refused("rows are so short that one thread is enough for each")
        if longest >= _LONG and assumed(self._rows) <= _FEW_LONG:
            raise Refused("a block for each of a few long rows would leave the machine idle")
        self._threads = next((n for n in (32, 64, 128) if longest <= 8 * n), 256)
        self._waiting = self._shared(self._threads // LANES, "float32", "waiting")
        for nest in nests:
            self._check(nest)

    def launch(self) -> tuple[Any, int | None]:
        """The launch, and how many bytes of shared memory a block has, if that is known."""
        body = launched((self._rows,), self._threads, self._row)
        used = [_bytes(buffer) for buffer in (self._waiting, *self._held.values()) if _is_shared(buffer)]
        return body, None if None in used else sum(size or 0 for size in used)

    def _row(self, grid: Any, thread: Any) -> Any:
        self._thread = thread
        body = [self._reduced(one, grid[0]) if one.reduced else self._each(one, grid[0]) for one in self._nests]
        return sequence_of([*(tirx.AllocBuffer(one) for one in (self._waiting, *self._held.values())), *body])

    def _reduced(self, nest: Nest, row: Any) -> Any:
        """The threads' shares, each in order, and then those of all threads."""
        (store,), (init,) = nest.stores, nest.inits
        combine, dtype = type(store.value), str(store.buffer.ty.dtype)
        total = local(1, "float32", f"{store.buffer.name}_row")
        self._held[store.buffer] = total
        added = store.value.b if _is_own(store.value.a, store) else store.value.a

        def step(places: Mapping[Any, Any]) -> Any:
            return kept(total, combine(at(total, 0), _as("float32", self._value(added, nest, row, places))), 0)

        start = kept(total, _as("float32", init.value), 0)
        shares = self._along(FlatAxes(nest.reduced), step)
        offsets = [LANES >> turn for turn in range(1, LANES.bit_length())]
        across = [kept(total, combine(at(total, 0), self._from_lane(at(total, 0), offset)), 0) for offset in offsets]
        statements = [start, shares, *across, *self._over_warps(total, combine)]
        if self._is_parameter(store.buffer):
            result = tirx.BufferStore(store.buffer, _as(dtype, at(total, 0)), self._indices(store, nest, row, {}))
            statements.append(guarded(self._thread == 0, result))
        return sequence_of(statements)

    def _over_warps(self, total: Any, combine: Any) -> list[Any]:
        warps = self._threads // LANES
        if warps == 1:
            return []
        lane, warp = tirx.floormod(self._thread, LANES), tirx.floordiv(self._thread, LANES)
        waiting = guarded(lane == 0, kept(self._waiting, at(total, 0), warp))
        combined = [kept(total, combine(at(total, 0), at(self._waiting, other)), 0) for other in range(1, warps)]
        first = kept(total, at(self._waiting, 0), 0)
        return [waiting, block_barrier(), first, *combined, block_barrier()]

    def _each(self, nest: Nest, row: Any) -> Any:
        """All elements of the row, or the one that there is, by every thread for itself."""
        (store,) = nest.stores
        inner = FlatAxes(tuple(self._inner(nest)))
        is_result = self._is_parameter(store.buffer)
        if not is_result:
            size = inner.extent
            dtype, name = str(store.buffer.ty.dtype), f"{store.buffer.name}_row"
            self._held[store.buffer] = self._shared(size, dtype, name) if inner.axes else local(1, dtype, name)

        def step(places: Mapping[Any, Any]) -> Any:
            value = self._value(store.value, nest, row, places)
            indices = self._indices(store, nest, row, places)
            if is_result:
                return tirx.BufferStore(store.buffer, value, indices)
            return kept(self._held[store.buffer], value, self._inner_index(store.buffer, indices))

        if not inner.axes:
            return guarded(self._thread == 0 if is_result else None, step({}))
        barrier = None if is_result else block_barrier()
        return sequence_of([self._along(inner, step), barrier])

    def _indices(self, store: Any, nest: Nest, row: Any, places: Mapping[Any, Any]) -> list[Any]:
        all_places = self._places(nest, row, places)
        return [tvm.sym.Analyzer().simplify(substitute(index, all_places)) for index in store.indices]

    def _value(self, value: Any, nest: Nest, row: Any, places: Mapping[Any, Any]) -> Any:
        """``value`` for an element of the row; what the block holds is read from there."""

        def on_load(load: Any) -> Any:
            indices = [tvm.sym.Analyzer().simplify(index) for index in load.indices]
            held = self._held.get(load.source)
            if held is None:
                return at(load.source, *indices)
            return _as(str(load.source.ty.dtype), at(held, self._inner_index(load.source, indices)))

        return structural_map(substitute(value, self._places(nest, row, places)), (tvm.ir.TensorLoad, on_load))

    def _places(self, nest: Nest, row: Any, places: Mapping[Any, Any]) -> dict[Any, Any]:
        count = self._counts[nest.buffers[0]]
        ones = {axis.var: number(0) for axis in nest.spatial[count:] if is_one(axis)}
        return {**FlatAxes(nest.spatial[:count]).at(row), **ones, **places}

    def _inner_index(self, buffer: Any, indices: Sequence[Any]) -> Any:
        """Where an element of a row is among those that the block holds of it."""
        place: Any = number(0)
        for index, extent in list(zip(indices, buffer.ty.shape, strict=True))[self._counts[buffer] :]:
            place = place * extent + index
        return tvm.sym.Analyzer().simplify(place)

    def _along(self, group: FlatAxes, body: Callable[[Mapping[Any, Any]], Any]) -> Any:
        """All elements of a group, neighbours by neighbouring threads."""
        extent, threads = group.extent, self._threads

        def turn(index: Any) -> Any:
            element = index * threads + self._thread
            return guarded(None if is_whole_tiles(extent, threads) else element < extent, body(group.at(element)))

        return loop(tiles_over(extent, threads), turn)

    def _from_lane(self, value: Any, offset: int) -> Any:
        lanes = number(LANES)
        return tirx.op.tvm_warp_shuffle_xor(_FULL, value, number(offset), lanes, lanes)

    def _inner(self, nest: Nest) -> list[Axis]:
        """The axes along a row."""
        axes = nest.reduced if nest.reduced else nest.spatial[self._counts[nest.buffers[0]] :]
        return [axis for axis in axes if not is_one(axis)]

    def _shared(self, size: Extent, dtype: str, name: str) -> Any:
        return tirx.decl_buffer([number(size)], dtype, name, scope="shared", layout=None)

    # ---- what is none of this

    def _check(self, nest: Nest) -> None:
        if len(nest.stores) != 1:
            raise Refused(f"{nest.name} has several results")
        own = {buffer for other in self._nests for buffer in other.buffers}
        for load in nest.loads():
            if load.source in own and not self._is_of_row(nest, load):
                raise Refused(f"{nest.name} reads another row of {load.source.name}")
        if not is_one_of(nest.buffers[0], self._parameters) and not nest.is_plain:
            raise Refused(f"{nest.name} does not store what it makes where its axes are")
        if nest.reduced:
            self._check_reduction(nest)
        elif nest.buffers[0] in {load.source for other in self._nests for load in other.loads()} & set(
            self._parameters
        ):
            raise Refused(f"{nest.buffers[0].name} is a result that is read again")

    def _check_reduction(self, nest: Nest) -> None:
        if not all(map(is_one, nest.spatial[self._counts[nest.buffers[0]] :])):
            raise Refused(f"{nest.name} has several results in a row")
        (store,), (init,) = nest.stores, nest.inits
        value = store.value
        loads = [one for one in nodes_of(value, tvm.ir.TensorLoad) if one.source.same_as(store.buffer)]
        is_combined = isinstance(value, _COMBINED) and len(loads) == 1
        is_combined = is_combined and (_is_own(value.a, store) or _is_own(value.b, store))
        is_sum = isinstance(value, tirx.Add)
        starts = isinstance(init.value, tirx.FloatImm) and (not is_sum or float(init.value) == 0.0)
        if not is_combined or not starts or str(store.buffer.ty.dtype) not in _FLOATS:
            raise Refused(f"{nest.name} is no sum of floats, nor the largest or smallest of them")
        if assumed(self._rows) < _FEW_ROWS:
            return
        last = next((axis for axis in reversed(nest.reduced) if not is_one(axis)), None)
        for load in nest.loads():
            access = StageAccess(load.source, tuple(load.indices))
            if last is not None and not load.source.same_as(store.buffer) and access.stride(last.var) not in (0, 1):
                raise Refused(f"{nest.name} reduces elements that lie apart")

    def _is_parameter(self, buffer: Any) -> bool:
        return is_one_of(buffer, self._parameters)

    def _leading(self, nest: Nest) -> int:
        """How many axes say which row it is."""
        analyzer = tvm.sym.Analyzer()
        for count in range(len(nest.spatial) + 1):
            rows = product_of_extents([axis.extent for axis in nest.spatial[:count]])
            if analyzer.can_prove_equal(number(rows), number(self._rows)):
                return count
        raise Refused(f"{nest.name} runs over other rows")

    def _is_of_row(self, nest: Nest, load: Any) -> bool:
        """What is read lies in the row that the nest is at."""
        own = [(axis.var, axis.extent) for axis in nest.spatial[: self._counts[nest.buffers[0]]]]
        read = list(zip(load.indices, load.source.ty.shape, strict=True))[: self._counts[load.source]]
        return bool(analyzer_over(nest.spatial).can_prove_equal(*map(_numbered, (own, read))))


def _numbered(places: Sequence[tuple[Any, Any]]) -> Any:
    """The number of a place among all, of indices and extents."""
    found: Any = number(0)
    for index, extent in places:
        found = found * extent + index
    return found


def _is_own(value: Any, store: Any) -> bool:
    """It is what the sum was."""
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(store.buffer)


def _as(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def _is_shared(buffer: Any) -> bool:
    return str(buffer.scope()) == "shared"


def _bytes(buffer: Any) -> int | None:
    size = as_int(buffer.ty.shape[0])
    return None if size is None else size * int(tvm.DataType(str(buffer.ty.dtype)).bits) // 8
