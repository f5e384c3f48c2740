"""What a register tile costs: loads, arithmetic and latency of one step of a reduction.

In: the facts of a reduction, the machine and tiles. Out: for each the cycles of a useful multiply-add lane.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.cache_sets import overflows_sets
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis, depends_on
from eqsat_layout.targets.schedules.stages import Stage

_SPARE = 1  # registers for the operand that is not held
_FRESH = 1.0  # cycles that a vector from beyond L2 takes where every tile needs others
_ELSEWHERE = 0.25  # cycles of reading on in another place, where every accumulator has a vector of its own
_KEPT = 1.0  # cycles of an operand that LLVM keeps for the next step of a window, where registers are full
_HELD = 0.75  # of the registers: others have weights, and what the epilogue needs (the constants of exp)
_LONG_ROW = 5  # elements of a window
_OF_A_ROW = {16: 9, 32: 15}  # of so many, for the accumulators of one row: its data is read as it is multiplied
_SPILLED = 1.5  # times as many cycles with more (measured on AVX2 and AVX-512: 1.1 to 2)
_STREAMED = 0.1  # of the cycles that loads from L2 take is not hidden
_FREE = 5  # registers beside accumulators, below which LLVM may put one of these on the stack in every step
_CROWDED = 1.1  # times as many cycles, where elements are broadcast to several vectors: half as large tiles are as good
_STREAMS = 12  # pieces of memory that the hardware prefetches at once
_UNFORESEEN = 4.0  # cycles of a vector that it does not prefetch, since there are more
_OVERTAKEN = 1.0  # cycles of a vector whose line was fetched and evicted, as so many streams share few sets of L1
_ACROSS = 0.1  # cycles to add a lane of a row's partial results, most of which pass beside the loads of the next tile
_SUPPLY = 0.72  # of the bandwidth of the last-level cache, for weights that come from there and from memory in turns
_BESIDE = 0.1  # of the shorter of both, supply and the core's own work, is not hidden: a cache may have the weights
_EVICTED = 1.2  # cycles of a row in a step where twice as many lie in the same sets of L1 as these have ways
_MISSED = 4.0  # cycles of one that is never there when it is read
_AWAITED = 12.0  # cycles of a line from the last-level cache that no hardware fetches ahead
_UNFETCHED = (
    6.0  # cycles of a step to another page, if what was fetched beside the last tile's lines is no longer there
)
Numbers: TypeAlias = NDArray[np.int64]

LONG = 32
"""Steps of a product so long that LLVM does not write it out."""


@dataclass(frozen=True)
class RegisterTile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Tiles:
    """Many of them: ``lanes`` and every one of ``sizes`` have an element for each."""

    vector: int
    lanes: Numbers
    sizes: tuple[Numbers, ...]

    @staticmethod
    def of_all(given: Sequence[Tiles]) -> Tiles:
        """Those of all, which have the same vector axis, in order."""
        sizes = map(np.concatenate, zip(*(tiles.sizes for tiles in given), strict=True))
        return Tiles(given[0].vector, np.concatenate([tiles.lanes for tiles in given]), tuple(sizes))

    def where(self, chosen: NDArray[np.bool_]) -> Tiles:
        """Those for which ``chosen`` is true."""
        return Tiles(self.vector, self.lanes[chosen], tuple(size[chosen] for size in self.sizes))

    def __getitem__(self, number: int) -> RegisterTile:
        return RegisterTile(self.vector, int(self.lanes[number]), tuple(int(size[number]) for size in self.sizes))


@dataclass(frozen=True)
class MetAgain:
    """Of ``n`` neighbours along ``axis``, ``each * n + more`` elements are read in more than one step, ``alone * n`` in
    one, of ``steps`` along a row."""

    axis: int
    each: int
    more: int
    alone: int
    steps: int


@dataclass(frozen=True)
class OperandLoad:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element.

    ``run``: elements along the last axis before memory goes on elsewhere. ``total``: bytes that all tiles read.
    ``readings``: for how many elements of the result each is read, if these are a product's weights; else 0.
    ``is_streamed``: they come from memory. ``met_again``: what other steps along the last axis of a window read again.
    ``step``: elements from one step to the next. ``is_far``: what a tile reads is not in L2 when the next one does.
    """

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int
    run: int
    total: int
    readings: int
    is_streamed: bool = False
    met_again: MetAgain | None = None
    step: int = 0
    is_far: bool = False

    def moves(self, axis: int) -> bool:
        """The load's address depends on the axis."""
        return self.strides[axis] != 0

    def moved(self, tile: RegisterTile | Tiles) -> Any:
        """Elements that a step of a tile reads, vectors counted as one."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if self.moves(axis))

    def kept(self, tiles: Tiles) -> Any:
        """Vectors that a tile reads again in other steps along the last axis of a window."""
        again = self.met_again
        if again is None:
            return np.zeros_like(tiles.lanes)
        size = tiles.sizes[again.axis]
        return self.moved(tiles) // size * (again.each * size + again.more)

    def is_one_row(self, tiles: Tiles) -> Any:
        """A tile is neighbours along the rows of a long window that moves by one."""
        again = self.met_again
        if again is None or (again.each, again.alone) != (1, 0) or again.steps < _LONG_ROW:
            return np.zeros(tiles.lanes.shape, bool)
        return self.moved(tiles) == tiles.sizes[again.axis]

    def distinct(self, tiles: Tiles) -> Any:
        """Steps of the reduction, of those that touch any, in which all elements would be new ones."""
        again = self.met_again
        if again is None:
            return self.steps
        size = tiles.sizes[again.axis]
        return self.steps // again.steps * ((again.each + again.alone) * size + again.more) / size

    def shared(self, tile: RegisterTile | Tiles) -> Any:
        """For how many elements of a tile each is read."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if not self.moves(axis))

    def evicted(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that it takes to read rows again whose distance leaves them few sets of L1: powers of two."""
        way, rows = machine.l1_way_bytes, self.moved(tiles)
        moving = [(stride, size) for stride, size in zip(self.strides, tiles.sizes, strict=True) if stride != 0]
        apart = [stride and math.gcd(stride * self.element_bytes, way) for stride, _ in moving]
        known = [step for step in apart if step]
        in_one_set = rows / np.minimum(rows, way // math.gcd(way, *known)) if known else rows / rows
        along_each = np.ones(tiles.lanes.shape)
        for (_, size), step in zip(moving, apart, strict=True):  # where tiles overlap, a stride is not known
            along_each = along_each * size / np.minimum(size, way // (step or max(known, default=1)))
        in_one_set = np.maximum(in_one_set, along_each)
        excess = np.maximum(in_one_set * way / machine.l1_working_set - 1, 0)
        return rows * np.minimum(_EVICTED * excess**2, _MISSED)

    def unfetched(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that tiles of a few lines wait for rows whose distance leaves them few sets of L1.

        Elsewhere the lines that come with those of one tile are there for the next one.
        """
        way, apart = machine.l1_way_bytes, self.step * self.element_bytes
        if apart <= machine.line_bytes:
            return np.zeros(tiles.lanes.shape)
        in_one_set = self.steps * math.gcd(apart, way) // way
        is_part = tiles.lanes * tiles.sizes[tiles.vector] < self.run
        is_evicted = in_one_set * way > machine.l1_working_set
        return np.where(is_part & is_evicted, _UNFETCHED * min(1.0, apart / way), 0)

    def awaited(self, tiles: Tiles, machine: CpuMachine) -> Any:
        """Cycles a step that lines are waited for which are not in L2."""
        if not self.is_far:
            return np.zeros(tiles.lanes.shape)
        size = tiles.lanes * self.element_bytes if self.strides[tiles.vector] else self.element_bytes
        along = math.prod(n for n, stride in zip(tiles.sizes, self.strides, strict=True) if stride == 1)
        lines = self.moved(tiles) / along * np.maximum(along * size / machine.line_bytes, 1)
        return _AWAITED * lines * min(1.0, self.step * self.element_bytes / machine.line_bytes)

    def streams(self, tile: RegisterTile | Tiles) -> Any:
        """Pieces of memory that a tile walks through side by side."""
        vectors = tile.sizes[tile.vector]
        return self.moved(tile) // np.where(tile.lanes * vectors <= self.run, vectors, 1)

    def are_in_step(self, tiles: Tiles, machine: CpuMachine, has_panels: bool) -> Any:
        """The pieces that a tile walks through, panels or rows, are in the same sets of L1 at any time, and are as many
        as fit these. The hardware fetches the next line of each before all of this one is read.

        Not so of rows that come from memory: a row is no longer than a page, and what is fetched ahead of it little.
        """
        if not has_panels and self.total > machine.last_level_working_set:
            return np.zeros(tiles.lanes.shape, bool)
        apart = self.run * self.steps  # panels lie one after another
        if not has_panels:
            apart = min((abs(stride) for stride in self.strides[:-1] if stride), default=0)
        groups = machine.l1_way_bytes // math.gcd(apart * self.element_bytes, machine.l1_way_bytes)
        return self.streams(tiles) >= groups * (machine.l1_working_set // machine.l1_way_bytes)


@dataclass(frozen=True)
class TileProblem:
    """What tiles of a reduction are judged by.

    ``width``: elements of a vector register; ``spare``: registers besides accumulators and the operand that is held;
    ``periods``: of blocks of the axis in vectors, which no vector may cross. ``is_depthwise``: of a window, where every
    element of the result is made of others. ``has_panels``: vectors run along the result, so what a tile reads of an
    operand lies in long pieces; else in the rows of a reduction.
    """

    loads: tuple[OperandLoad, ...]
    steps: int
    width: int
    spare: int
    periods: tuple[int, ...]
    has_window: bool
    is_depthwise: bool
    has_panels: bool


def problem_of(stage: Stage, axes: Sequence[StageAxis], machine: CpuMachine) -> TileProblem:
    """For tiles over ``axes``, the last one in vectors."""
    last = axes[-1]
    shared = [a for a in axes if not a.reduce and all(access.uses(a.var) for access in stage.loads)]
    batch = math.prod(a.extent or 64 for a in shared)
    periods = [access.period(last.var) for access in stage.loads]
    loads: list[OperandLoad] = []
    for number, (access, period) in enumerate(zip(stage.loads, periods, strict=True)):
        if any(access.is_same(other) for other in stage.loads[:number]):
            continue  # a square, read once
        steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
        strides = tuple(access.stride(a.var) for a in axes)
        run = period or last.extent or 1
        total = access.buffer_bytes // batch
        is_weights = access is stage.vector_load and stage.is_product and not stage.is_part and not stage.has_window
        read = readings(stage, access) if is_weights else 0
        is_streamed = is_weights and access.buffer_bytes > machine.l2_working_set // 2
        again = _met_again(access, axes, stage.reduced)
        step = _step(stage, access)
        is_far = not stage.is_part and overflows_sets(access, stage.reduced, machine)
        loads.append(
            OperandLoad(strides, steps, access.element_bytes, run, total, read, is_streamed, again, step, is_far)
        )
    width = machine.lanes(stage.write.element_bytes)
    blocks = tuple(period for period in periods if period)
    is_own = any(all(a.extent == 1 or load.moves(i) for i, a in enumerate(axes)) for load in loads)
    is_depthwise = stage.has_window and is_own
    kind = stage.has_window, is_depthwise, not last.reduce
    return TileProblem(tuple(loads), stage.steps, width, _spare(stage, machine), blocks, *kind)


def _step(stage: Stage, access: StageAccess) -> int:
    """Elements from one step to the next: along the axis that the load in vectors goes on along, as loops do."""
    held = stage.vector_load or access
    moving = [axis for axis in stage.reduced if axis.extent != 1 and access.uses(axis.var)]
    strides = {axis.var: abs(held.stride(axis.var) or 0) for axis in moving}
    along = min(moving, key=lambda axis: strides[axis.var] or math.inf, default=None)
    return abs(access.stride(along.var) or 0) if along is not None else 0


def _met_again(access: StageAccess, axes: Sequence[StageAxis], reduced: Sequence[StageAxis]) -> MetAgain | None:
    """What steps along the last reduced axis read again; ``None`` for what moves along no other one with it."""
    row = next((axis for axis in reversed(reduced) if axis.extent != 1), None)
    if row is None or row.extent is None:
        return None
    moving = [index for index in access.indices if depends_on(index, row.var)]
    sliding = [n for n, axis in enumerate(axes[:-1]) if any(depends_on(index, axis.var) for index in moving)]
    found = [n for n in sliding if access.stride(axes[n].var) is not None]  # not which of tiles that overlap
    if len(moving) != 1 or len(found) != 1:
        return None
    stride, step = (access.stride(axis.var) for axis in (axes[found[0]], row))
    if not stride or not step:
        return None
    places: dict[int, list[int]] = {}
    for number in range(row.extent):
        places.setdefault(number * step % stride, []).append(number * step // stride)
    again = [own for own in places.values() if own[1:]]  # others are read in one step only
    more = sum(max(own) - min(own) for own in again)
    return MetAgain(found[0], len(again), more, len(places) - len(again), row.extent)


def readings(stage: Stage, access: StageAccess) -> int:
    """For how many elements of the result each one of an operand is read."""
    return math.prod(axis.extent or 64 for axis in stage.spatial if not access.uses(axis.var))


def _spare(stage: Stage, machine: CpuMachine) -> int:
    """Registers besides accumulators and the operand that is held; LLVM needs one more to itself, else it spills.

    Not so in long products, whose addresses and operands are the same in every step.
    """
    is_long = stage.steps >= LONG and stage.is_product
    return _SPARE if machine.broadcast_operand or is_long else _SPARE + 1


def tile_step_cycles(problem: TileProblem, tiles: Tiles, machine: CpuMachine) -> list[float]:
    """For each tile the cycles per useful multiply-add lane; infinite if it does not fit the registers."""
    width, lanes = problem.width, tiles.lanes
    vectors = -(-lanes // width)
    unit = max(1, width // machine.passes(machine.vector_bytes))
    passes = -(-lanes // unit)
    once = -(-np.minimum(lanes, width) // unit)  # of one vector
    pieces = lanes // width + np.array([(lane % width).bit_count() for lane in lanes.tolist()], np.int64)
    if not problem.has_panels:
        pieces = 2 * pieces - 1  # what lies along a row is put together in a register
    count = math.prod(tiles.sizes)
    accumulators = vectors * count
    held = np.full(lanes.shape, machine.registers)
    issued, loading, streamed, fresh, supply, elsewhere, waiting = (np.zeros(lanes.shape) for _ in range(7))
    kept, is_row = accumulators, np.zeros(lanes.shape, bool)
    for load in problem.loads:
        moved = load.moved(tiles)
        stride = load.strides[tiles.vector] or 0
        held = np.minimum(held, moved * vectors if stride else moved)
        issued += moved * (1, pieces, 2 * lanes)[stride]
        loading += moved * (1, np.maximum(pieces, passes), 2 * lanes)[stride]
        if not stride:
            waiting += load.evicted(tiles, machine)
        elif problem.has_panels:
            waiting += load.unfetched(tiles, machine)
        waiting += load.awaited(tiles, machine)
        touched = touched_bytes(load, tiles, machine, goes_on=not problem.has_panels)
        panel = touched * load.distinct(tiles)
        is_far = panel > machine.l1_working_set // 2
        if load.readings:
            is_far |= (load.shared(tiles) >= load.readings) & (load.total > machine.l1_working_set)
            arriving, missed = _of_weights(load, tiles, touched, problem.has_panels, machine)
            supply, waiting = supply + arriving, waiting + missed
        streamed += np.where(is_far, touched / machine.panel_bytes_per_cycle, 0)
        if not stride and load.total > machine.l2_working_set:  # new rows
            fresh += touched / machine.vector_bytes
        elif stride and problem.has_window:  # a new panel, with many rows not cut in pieces
            fresh += np.where(panel > machine.l2_working_set, touched / machine.vector_bytes, 0)
        if problem.is_depthwise and stride:
            kept = kept + load.kept(tiles) * vectors
            is_row |= load.is_one_row(tiles) & (vectors == 1)
            is_own = (moved == count) & (lanes * tiles.sizes[tiles.vector] < load.run)
            elsewhere += np.where(is_own, moved // tiles.sizes[tiles.vector] / once, 0)  # while a second half is read
    limits = (passes * count / machine.fma_units, loading / machine.loads_per_cycle, streamed)
    cycles = np.maximum((accumulators + issued) / machine.instructions_per_cycle, machine.fma_latency)
    for limit in limits:
        cycles = np.maximum(cycles, limit)
    cycles = np.maximum(cycles, supply) + _BESIDE * np.minimum(cycles, supply)
    if problem.is_depthwise:
        cycles += np.where(is_row, 0, _KEPT * np.maximum(kept - _HELD * machine.registers, 0))
        most = _OF_A_ROW.get(machine.registers, machine.registers // 2)
        cycles *= np.where(is_row & (accumulators > most), _SPILLED, 1)
    if not problem.has_panels:
        cycles += _ACROSS * lanes**2 * count / problem.steps
    cycles += waiting + _FRESH * fresh + _STREAMED * streamed + _ELSEWHERE * elsewhere + 0.02 * issued
    small = sum((size > 1).astype(int) for axis, size in enumerate(tiles.sizes) if axis != tiles.vector)
    rows = math.prod(tiles.sizes[: max(0, tiles.vector - 1)])  # of the result, far from each other
    is_crowded = machine.broadcast_operand & (held > 1) & (machine.registers - accumulators < _FREE)
    cycles = (cycles + 0.05 * small + 0.04 * rows) * np.where(is_crowded, _CROWDED, 1) / (lanes * count)
    is_fit = accumulators + held + problem.spare <= machine.registers
    found: list[float] = np.where(is_fit, cycles, math.inf).tolist()
    return found


def _of_weights(
    load: OperandLoad, tiles: Tiles, touched: Any, has_panels: bool, machine: CpuMachine
) -> tuple[Any, Any]:
    """Cycles of a step in which weights are on their way, and in which it waits for some that nobody has sent for."""
    first = load.shared(tiles) / load.readings
    missed = np.where(load.are_in_step(tiles, machine, has_panels), _OVERTAKEN, 0)
    if not load.is_streamed:
        return np.zeros(tiles.lanes.shape), missed * load.moved(tiles) * first
    if has_panels:
        missed = missed + np.where(load.streams(tiles) > _STREAMS, _UNFORESEEN, 0)
    arriving = _SUPPLY * machine.last_level_bandwidth / machine.clock  # bytes a cycle
    # to L2 for all tiles that share a panel, from there for each
    supply = touched * first / arriving + touched / machine.l2_bytes_per_cycle
    return supply, missed * load.moved(tiles) * first


def touched_bytes(load: OperandLoad, tile: RegisterTile | Tiles, machine: CpuMachine, *, goes_on: bool = False) -> Any:
    """Bytes that a step of a tile, or of each, moves to L1. ``goes_on``: along the same rows in the next step."""
    moved = load.moved(tile)
    stride = load.strides[tile.vector] or 0
    touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
    if not stride or goes_on:
        return touched
    vectors = tile.sizes[tile.vector]
    in_lines = np.maximum(touched, moved // vectors * machine.line_bytes)  # the rest of a line is of no use yet
    return np.where(tile.lanes * vectors < load.run, in_lines, touched)
