"""Depthwise convolutions: a thread has some channels that lie together, at neighbouring places along one axis; or one
channel, whose places lie together.

In: a PrimFunc of a sum of products in which one operand is the same for all places, and windows of the other one slide
along an axis. Out: a PrimFunc without blocks that launches one kernel. What windows of neighbours share is loaded once,
and sums are in single precision, one after the other. Refused: data that do not lie together, windows that do
not slide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.extents import Extent, assumed, is_whole_tiles, product_of_extents, tiles_over
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand
from eqsat_layout.targets.cuda.kernels.products import Product, any_product_of, with_places_apart
from eqsat_layout.targets.cuda.kernels.results import Results
from eqsat_layout.targets.cuda.kernels.runs import in_runs
from eqsat_layout.targets.cuda.kernels.statements import (
    at,
    guarded,
    kept,
    launched,
    local,
    loop,
    number,
    sequence_of,
)
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.gpu.kernels.nests import Axis
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int, quotient, remainder
from eqsat_layout.tir.structural import substitute

_THREADS: Final = 128
_PLACES: Final = (8, 7, 6, 5, 4, 3, 2, 1)
"""Of a thread."""
_LANES: Final = 16
"""Bytes that are loaded together."""
_ENOUGH: Final = 512
"""Threads of a multiprocessor that hide the time of loads (assumed)."""
_MOST_REGISTERS: Final = 160
"""Of a thread, for what it loads and sums."""
_FLOATS: Final = ("float16", "bfloat16", "float32")


def window_kernel(func: Any, machine: CudaMachine) -> Any:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is no such sum."""
    product = any_product_of(func)
    if product.rows.axes:
        raise Refused("both operands depend on the place")
    product = with_places_apart(product)
    lines = [line for line in _lines(product) or _lines_along(product) if line.registers <= _MOST_REGISTERS]
    if not lines:
        raise Refused("no windows slide along an axis, or they are too large")
    line = min(lines, key=lambda one: one.cost(machine))
    return product.func.with_body(_Kernel(line).launch())


@dataclass(frozen=True)
class _Line:
    """``places`` results of a thread along an axis, ``lanes`` of them along the channels at each.

    Along ``step`` windows slide: ``ratio`` steps on is the next place. ``has_weights_together``: of a run of channels.
    ``along``: of one channel, elements of a load along the axis, and the first of those of a thread that begins one.
    """

    product: Product
    axis: Axis
    step: Axis
    channel: Axis
    ratio: int
    lanes: int
    places: int
    has_weights_together: bool
    along: tuple[int, int] = (1, 0)

    @property
    def loads(self) -> Sequence[tuple[int, int]]:
        """Of the data along the axis: where each begins, and its elements."""
        together, first = self.along
        whole = range(first, self.loaded - together + 1, together)
        end = first + len(whole) * together
        single = [(place, 1) for place in (*range(first), *range(end, self.loaded))]
        return sorted([*((place, together) for place in whole), *single])

    @property
    def steps(self) -> int:
        return int(self.step.extent)

    @property
    def loaded(self) -> int:
        """Elements along the axis that windows of all places have."""
        return (self.places - 1) * self.ratio + self.steps

    @property
    def others(self) -> FlatAxes:
        """The axes that are not tiled."""
        taken = (self.axis, self.channel)
        return FlatAxes(tuple(axis for axis in self._axes if not any(axis.var.same_as(one.var) for one in taken)))

    @property
    def threads(self) -> Extent:
        return product_of_extents((self.others.extent, *self.tiles))

    @property
    def tiles(self) -> tuple[Extent, Extent]:
        """Along the axis, and along the channels."""
        return tiles_over(self.axis.extent, self.places), tiles_over(self.channel.extent, self.lanes)

    @property
    def registers(self) -> int:
        """Registers of 4 bytes for sums, data and weights."""
        size = int(tvm.DataType(self.product.dtype).bits) // 8
        return (4 * self.places + size * (self.loaded + self.steps)) * self.lanes // 4

    @property
    def _axes(self) -> tuple[Axis, ...]:
        return (*self.product.columns.axes, *self.product.batch.axes)

    def cost(self, machine: CudaMachine) -> float:
        """Loads for an element, more where too few threads wait for theirs."""
        weights = self.steps * (1 if self.has_weights_together else self.lanes)
        loads = (len(self.loads) + weights) / (self.places * self.lanes)
        idle = max(1.0, machine.multiprocessors * _ENOUGH / assumed(self.threads))
        return loads * idle


def _lines(product: Product) -> list[_Line]:
    """Of channels that lie together."""
    found = []
    for axis, step, ratio in _sliding(product):
        for channel in product.batch.axes:
            lanes = _lanes(product, channel)
            together = _is_run(product, _operands(product)[1], channel, lanes)
            line = _Line(product, axis, step, channel, ratio, lanes, 1, together)
            found += _of_places(line) if lanes > 1 else []
    return found


def _lines_along(product: Product) -> list[_Line]:
    """Of places that lie together: loads begin where those of every thread may."""
    found = []
    for axis, step, ratio in _sliding(product):
        for channel in product.batch.axes[-1:]:
            for along in _along(product, axis, step, ratio):
                line = _Line(product, axis, step, channel, ratio, 1, 1, False, along)
                found += [one for one in _of_places(line) if one.places * ratio % along[0] == 0]
    return found


def _of_places(line: _Line) -> list[_Line]:
    return [replace(line, places=places) for places in _PLACES if is_whole_tiles(line.axis.extent, places)]


def _sliding(product: Product) -> Iterator[tuple[Axis, Axis, int]]:
    """Axes of places and of steps along which windows slide, and how many steps on the next place is."""
    dtypes = {product.left.dtype, product.right.dtype}
    if len(dtypes) != 1 or not dtypes <= set(_FLOATS) or any(one.guarded is None for one in _operands(product)):
        return
    data, weight = _operands(product)
    for axis in reversed(product.columns.axes):
        for step in product.steps.axes:
            ratio = 0 if as_int(step.extent) is None or weight.uses(axis) else _ratio(data, axis, step)
            if ratio:
                yield axis, step, ratio


def _along(product: Product, axis: Axis, step: Axis, ratio: int) -> Iterator[tuple[int, int]]:
    """Elements along an axis that are one load under one guard, and the first one that begins such a load."""
    guarded_load, extent = _operands(product)[0].guarded, as_int(axis.extent)
    if guarded_load is None or extent is None:
        return
    place, (load, guard) = tirx.Var("place", "int32"), guarded_load
    for lanes in _lengths(product):
        reached = FlatAxes((Axis(place, number(-(-(extent * ratio + int(step.extent)) // lanes) * lanes)),))
        for first in range(lanes):
            there = {axis.var: number(0), step.var: place + first}
            *indices, condition = (substitute(one, there) for one in (*load.indices, guard))
            if in_runs(load.source, indices, reached, lanes, product.fixed, condition):
                yield lanes, first
                break


def _lengths(product: Product) -> list[int]:
    """Elements of a load of several, the most first."""
    longest = _LANES * 8 // int(tvm.DataType(product.dtype).bits)
    return [lanes for lanes in (8, 4, 2) if lanes <= longest]


def _operands(product: Product) -> tuple[Operand, Operand]:
    """What windows slide over, and what is the same for all places."""
    return (product.right, product.left)


def _lanes(product: Product, channel: Axis) -> int:
    """Elements along the channels that lie together in the data."""
    return next((lanes for lanes in _lengths(product) if _is_run(product, _operands(product)[0], channel, lanes)), 1)


def _is_run(product: Product, operand: Operand, channel: Axis, lanes: int) -> bool:
    """They are one load."""
    assert operand.guarded is not None
    load, guard = operand.guarded
    return in_runs(load.source, list(load.indices), FlatAxes((channel,)), lanes, product.fixed, guard)


def _ratio(data: Operand, axis: Axis, step: Axis) -> int:
    """How many steps on a window of the next place begins; 0 if it does not."""
    assert data.guarded is not None
    load, _ = data.guarded
    access = StageAccess(load.source, tuple(load.indices))
    along, inside = access.stride(axis.var), access.stride(step.var)
    if not along or not inside or along % inside or along // inside not in range(1, int(step.extent) + 1):
        return 0
    ratio = along // inside
    moved = [_moved(data.guarded, var, by) for var, by in ((axis.var, 1), (step.var, ratio))]
    return ratio if tvm_ffi.structural_equal(*moved) else 0


def _moved(guarded_load: tuple[Any, Any], var: Any, by: int) -> list[Any]:
    """Indices and guard where a variable is larger."""
    load, condition = guarded_load
    analyzer = tvm.sym.Analyzer()
    return [analyzer.simplify(substitute(one, {var: var + by})) for one in (*load.indices, condition)]


class _Kernel:
    def __init__(self, line: _Line) -> None:
        self._line, self._product = line, line.product
        self._threads = min(_THREADS, as_int(line.threads) or _THREADS)
        product = line.product
        own = [
            FlatAxes((axis,)) for axis in ((line.axis, line.channel) if line.lanes > 1 else (line.channel, line.axis))
        ]
        self._results = Results(_with_axes(product, line.others, *own))
        self._data, self._weight = _operands(product)
        self._window = FlatAxes(tuple(axis for axis in product.steps.axes if not axis.var.same_as(line.step.var)))

    def launch(self) -> Any:
        return launched((tiles_over(self._line.threads, self._threads),), self._threads, self._block)

    def _block(self, grid: Any, thread: Any) -> Any:
        line = self._line
        number_ = grid[0] * self._threads + thread
        places, channels = line.tiles
        rest, channel = quotient(number_, channels), remainder(number_, channels) * line.lanes
        other, place = quotient(rest, places), remainder(rest, places) * line.places
        here = {**self._product.fixed, **line.others.at(other), line.axis.var: place, line.channel.var: channel}
        sums = local(line.places * line.lanes, "float32", "sums")
        body = sequence_of(
            [
                tirx.AllocBuffer(sums),
                self._each(line.places, lambda index: kept(sums, tirx.const(0.0, "float32"), index)),
                loop(self._window.extent, lambda turn: self._added(sums, {**here, **self._window.at(turn)})),
                *self._stored(sums, other, place, channel),
            ]
        )
        return guarded(None if is_whole_tiles(line.threads, self._threads) else number_ < line.threads, body)

    def _added(self, sums: Any, here: Mapping[Any, Any]) -> Any:
        """All windows, where the other steps are at one place."""
        line = self._line
        data = local(line.loaded * line.lanes, self._data.dtype, "data")
        weight = local(line.steps * line.lanes, self._weight.dtype, "weight")
        statements = [tirx.AllocBuffer(data), tirx.AllocBuffer(weight)]
        for place, count in line.loads:
            window = min(place // line.ratio, line.places - 1)
            there = {line.axis.var: here[line.axis.var] + window, line.step.var: number(place - window * line.ratio)}
            along = (line.step, count) if count > 1 else (line.channel, line.lanes)
            statements.append(self._loaded(data, place * line.lanes, self._data, {**here, **there}, *along))
        for step in range(line.steps):
            there = {**here, line.step.var: number(step)}
            statements.append(self._loaded(weight, step * line.lanes, self._weight, there, line.channel, line.lanes))
        for window in range(line.places):
            for step in range(line.steps):
                statements += self._multiplied(sums, data, weight, window, step)
        return sequence_of(statements)

    def _multiplied(self, sums: Any, data: Any, weight: Any, window: int, step: int) -> list[Any]:
        line = self._line

        def wide(value: Any) -> Any:
            return value if str(value.ty.dtype) == "float32" else tirx.Cast("float32", value)

        found: list[Any] = []
        for lane in range(line.lanes):
            own = window * line.lanes + lane
            a = wide(at(data, (window * line.ratio + step) * line.lanes + lane))
            b = wide(at(weight, step * line.lanes + lane))
            found.append(kept(sums, at(sums, own) + a * b, own))
        return found

    def _loaded(
        self, registers: Any, first: int, operand: Operand, there: Mapping[Any, Any], axis: Axis, lanes: int
    ) -> Any:
        """A run of elements along an axis, to a register and those behind it; zeros where the guard says so."""
        assert operand.guarded is not None
        load, guard = operand.guarded
        condition = tvm.sym.Analyzer().simplify(substitute(guard, there))

        def element(lane: Any) -> Any:
            places = {**there, axis.var: there[axis.var] + lane}
            indices = (tvm.sym.Analyzer().simplify(substitute(one, places)) for one in load.indices)
            return kept(registers, at(load.source, *indices), first + lane)

        def zero(lane: Any) -> Any:
            return kept(registers, tirx.const(0.0, operand.dtype), first + lane)

        is_run = operand is self._data or self._line.has_weights_together
        copied = loop(lanes, element, tirx.ForKind.VECTORIZED if is_run else tirx.ForKind.UNROLLED)
        if isinstance(condition, tirx.IntImm) and int(condition):
            return copied
        return tirx.IfThenElse(condition, copied, loop(lanes, zero, tirx.ForKind.UNROLLED))

    def _stored(self, sums: Any, other: Any, place: Any, channel: Any) -> Iterator[Any]:
        line = self._line
        along = line.lanes if line.lanes > 1 else line.places
        run = max(one for one in (1, 2, 4, 8) if one <= self._results.run and along % one == 0)
        for begin in range(0, line.places * line.lanes, run):
            window, lane = divmod(begin, line.lanes)
            where = (place + window, channel + lane) if line.lanes > 1 else (channel, place + window)

            def total(lane: Any, begin: int = begin) -> Any:
                return at(sums, begin + lane)

            yield self._results.stored_by(run, other, *where, total)

    def _each(self, places: int, body: Any) -> Any:
        return sequence_of(body(index) for index in range(places * self._line.lanes))


def _with_axes(product: Product, others: FlatAxes, rows: FlatAxes, columns: FlatAxes) -> Product:
    """As results are stored, along the last one."""
    return replace(product, batch=others, rows=rows, columns=columns)
