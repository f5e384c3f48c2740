"""Register tiles: which accumulators of a reduction are kept in registers at once (targets room).

In: the facts of a reduction stage and the machine. Out: the lanes of the vector axis and the tile of every spatial
axis that keep the arithmetic units busiest by a small model of registers, loads and latency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.core_sharing import cut_into, pieces_of, shared_tiles
from eqsat_layout.targets.schedules.stages import Access, Axis, Stage, divisors

_SPARE = 1  # registers for the operand that is not held
_LONG = 32  # steps of a product so long that LLVM does not write it out
_PANEL = 0.25  # of the working set of L2, for what one panel of a reduction reads: the next one must have room
_PIECE = 0.0625  # of it, for a piece of such a panel that few rows share: the first one is waited for
_LARGEST = 28  # accumulators along one axis: with operands, more fill the registers of any machine
_FEW_ROWS = 320  # elements that share a panel: for more, waiting for its first piece counts little
_ADDRESSES = 60.0  # cycles to compute those of a tile over joined axes, or that overlaps
_FRESH = 1.0  # cycles that a vector from beyond L2 takes where every tile needs others
_ELSEWHERE = 1.0  # cycles of reading on in another place, where every accumulator has a vector of its own
_STREAMED = 0.1  # of the cycles that loads from L2 take is not hidden
_SUPPLY = 0.72  # of the bandwidth of the last-level cache, for weights that come from there and from memory in turns


@dataclass(frozen=True)
class Tile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class JoinedTile:
    """``size`` elements at a time of the spatial axes ``first`` to ``last`` (not included) taken as one axis.

    ``size`` need not divide their number: the last tiles overlap the one before. ``count``: of tiles.
    """

    first: int
    last: int
    size: int
    count: int


def register_tile(stage: Stage, machine: CpuMachine, *, whole: bool = False) -> Tile | None:
    """The best tile of ``stage`` with its last spatial axis in vectors; ``None`` if that axis does not vectorise.

    ``whole``: only tiles that hold all of that axis.
    """
    spatial = stage.spatial
    if not spatial:
        return None
    if (known := _matrix_tile(stage, machine, whole=whole)) is not None:
        return known[1]
    found = _best(_problem_of(stage, spatial, machine), tuple(a.extent for a in spatial), machine, whole=whole)
    return found[1] if found else None


def lane_tile(stage: Stage, machine: CpuMachine) -> Tile | None:
    """The best tile with the last reduction axis in vectors: ``sizes`` has one entry more, 1, for that axis."""
    if not stage.reduced:
        return None
    axes = (*stage.spatial, stage.reduced[-1])
    extents = tuple(a.extent for a in axes)
    found = _best(_problem_of(stage, axes, machine), extents, machine, one_vector=True)
    return found[1] if found else None


def joined_tile(stage: Stage, machine: CpuMachine) -> JoinedTile | None:
    """The best tile over joined axes, or over an axis that it does not divide; ``None`` where a plain one is as good.

    That of the vector axis comes first, if both it and others are to be cut so: ask again after.
    """
    if not stage.spatial or any(axis.extent is None for axis in stage.spatial):
        return None
    if _matrix_tile(stage, machine) is not None:
        return None
    problem = _problem_of(stage, stage.spatial, machine)
    extents = tuple(a.extent or 1 for a in stage.spatial)
    vector, width = len(extents) - 1, problem.width
    plain = _best(problem, extents, machine)
    best: _Costed = (plain[0] if plain else math.inf, None)
    best = min(best, _joined(problem, extents, machine), key=_cost)
    for size in () if problem.is_depthwise else (width, 2 * width, 4 * width):
        if width < 2 or size > extents[vector] or extents[vector] % size == 0:
            continue
        cut = (*extents[:vector], size)
        inside = _best(problem, cut, machine)
        cost = min(inside[0] if inside else math.inf, _joined(problem, cut, machine)[0])
        count = math.ceil(extents[vector] / size)
        tile = JoinedTile(vector, vector + 1, size, count)
        best = min(best, (cost * _waste(extents[vector], size), tile), key=_cost)
    return best[1]


def evenly_shared(stage: Stage, tile: JoinedTile, machine: CpuMachine) -> JoinedTile:
    """The same with more tiles, where cores are to have as many of them."""
    pieces = pieces_of(stage, machine)
    for axis in pieces.axes:
        if tile.first <= axis < tile.last:
            return replace(tile, count=shared_tiles(tile.count, pieces.count, machine))
        if cut_into(stage.spatial[axis].extent or 1, pieces.count, machine) > 1:
            break  # this one is cut instead
    return tile


def tile_cycles(stage: Stage, machine: CpuMachine, *, joined: bool = False) -> float | None:
    """Cycles per step and element with the best register tile; ``None`` if the last spatial axis does not vectorise.

    ``joined``: with tiles over joined axes too.
    """
    if not stage.spatial:
        return None
    if (known := _matrix_tile(stage, machine)) is not None:
        return known[0]
    problem = _problem_of(stage, stage.spatial, machine)
    extents = tuple(a.extent for a in stage.spatial)
    found = _best(problem, extents, machine)
    costs = [found[0]] if found else []
    if joined and None not in extents:
        costs.append(_joined(problem, tuple(extent or 1 for extent in extents), machine)[0])
    best = min(costs, default=math.inf)
    return best if best < math.inf else None


def reduction_pieces(stage: Stage, tile: Tile, machine: CpuMachine) -> int:
    """In how many pieces the outermost axis of a reduction is done, for a panel of them to fit L2.

    One for windows of many rows: 512 channels at 3x3 gain a fifth for one image of 7x7 and lose a third for eight.
    """
    if stage.matrix is not None or _is_long_window(stage):
        return 1
    weights = stage.vector_load
    loads = _problem_of(stage, stage.spatial, machine).loads
    panel = max((_touched(load, tile, machine) * load.steps for load in loads if load.strides[tile.vector]), default=0)
    if weights is None or panel < _PANEL * machine.l2_working_set:
        return 1
    most = (_PIECE if _readings(stage, weights) <= _FEW_ROWS else _PANEL) * machine.l2_working_set
    outermost = stage.reduced[0].extent or 1
    fit = [d for d in divisors(outermost, outermost) if panel <= d * _PANEL * machine.l2_working_set]
    long = [d for d in fit if stage.steps // d >= _LONG] or [1]
    return next((d for d in long if panel <= d * most), long[-1])


def _is_long_window(stage: Stage) -> bool:
    """A reduction over a window for so many elements that its panels are not cut in pieces."""
    weights = stage.vector_load
    return stage.has_window and (weights is None or _readings(stage, weights) > _FEW_ROWS)


def _matrix_tile(stage: Stage, machine: CpuMachine, *, whole: bool = False) -> tuple[float, Tile] | None:
    """The tile that holds all rows of a known matrix, and its cycles; ``None`` if there is none."""
    if stage.matrix is None:
        return None
    spatial, matrix = stage.spatial, stage.matrix.load
    vector = len(spatial) - 1
    extent, width = spatial[vector].extent, machine.lanes(stage.write.element_bytes)
    data = next(load for load in stage.loads if load is not matrix)
    if extent is None or matrix.uses(spatial[vector].var) or data.stride(spatial[vector].var) not in (0, 1):
        return None
    period = data.period(spatial[vector].var) or extent
    lanes = max(divisors(math.gcd(extent, period), width))
    sizes = [matrix.period(axis.var) or axis.extent if matrix.uses(axis.var) else 1 for axis in spatial]
    if any(size is None or (axis.extent or 0) % size for size, axis in zip(sizes, spatial, strict=True)):
        return None
    sizes[vector] = extent // lanes if whole else 1
    tile = Tile(vector, lanes, tuple(size or 1 for size in sizes))
    count = math.prod(tile.sizes)
    if lanes < min(width, extent) // 2 or count > _LARGEST:
        return None
    rows = math.prod(tile.sizes[:vector])
    operations = max(0, int((stage.matrix.elements != 0).sum()) - rows)
    issued = operations + stage.steps + rows
    cycles = max(
        operations / machine.fma_units, issued / machine.instructions_per_cycle, rows / machine.stores_per_cycle
    )
    return cycles / (lanes * rows * stage.steps), tile


_Costed = tuple[float, JoinedTile | None]


def _cost(costed: _Costed) -> float:
    return round(costed[0], 9)


def _joined(problem: _Problem, extents: tuple[int, ...], machine: CpuMachine) -> _Costed:
    """The best tile over axes other than that in vectors, and its cycles."""
    best: _Costed = (math.inf, None)
    for first, last in _runs(problem.loads, len(extents) - 1):
        elements = math.prod(extents[first:last])
        loads = tuple(replace(load, strides=_together(load.strides, first, last)) for load in problem.loads)
        together = replace(problem, loads=loads)
        for size in range(2, min(elements, machine.registers) + 1):
            given = (*extents[:first], size, *extents[last:])
            found = _best(together, given, machine, held=first)
            if found is not None:
                cycles, tile = found
                cycles *= _waste(elements, size)
                cycles += _ADDRESSES / (problem.steps * tile.lanes * math.prod(tile.sizes))
                best = min(best, (cycles, JoinedTile(first, last, size, math.ceil(elements / size))), key=_cost)
    return best


def _waste(elements: int, size: int) -> float:
    """How many times as many elements are computed by tiles of ``size`` that overlap."""
    return math.ceil(elements / size) * size / elements


@dataclass(frozen=True)
class _Load:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element.

    ``run``: elements along the last axis before memory goes on elsewhere. ``total``: bytes that all tiles read.
    ``readings``: for how many elements of the result each is read, where they come from memory; else 0.
    """

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int
    run: int
    total: int
    readings: int

    def moves(self, axis: int) -> bool:
        return self.strides[axis] != 0

    def moved(self, tile: Tile) -> int:
        """Elements that a step of a tile reads, vectors counted as one."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if self.moves(axis))

    def shared(self, tile: Tile) -> int:
        """For how many elements of a tile each is read."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if not self.moves(axis))


@dataclass(frozen=True)
class _Problem:
    """What tiles of a reduction are judged by.

    ``width``: elements of a vector register; ``spare``: registers besides accumulators and the operand that is held;
    ``periods``: of blocks of the axis in vectors, which no vector may cross. ``is_depthwise``: of a window, where every
    element of the result is made of others.
    """

    loads: tuple[_Load, ...]
    steps: int
    width: int
    spare: int
    periods: tuple[int, ...]
    has_window: bool
    is_depthwise: bool


def _problem_of(stage: Stage, axes: Sequence[Axis], machine: CpuMachine) -> _Problem:
    """For tiles over ``axes``, the last one in vectors."""
    last = axes[-1]
    batch = math.prod(a.extent or 64 for a in axes if all(access.uses(a.var) for access in stage.loads))
    periods = [access.period(last.var) for access in stage.loads]
    loads: list[_Load] = []
    for access, period in zip(stage.loads, periods, strict=True):
        steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
        strides = tuple(access.stride(a.var) for a in axes)
        run = period or last.extent or 1
        total = access.buffer_bytes // batch
        readings = _readings(stage, access) if _is_streamed(stage, access, machine) else 0
        loads.append(_Load(strides, steps, access.element_bytes, run, total, readings))
    width = machine.lanes(stage.write.element_bytes)
    blocks = tuple(period for period in periods if period)
    is_own = any(all(a.extent == 1 or load.moves(i) for i, a in enumerate(axes)) for load in loads)
    is_depthwise = stage.has_window and is_own
    return _Problem(tuple(loads), stage.steps, width, _spare(stage, machine), blocks, stage.has_window, is_depthwise)


def _is_streamed(stage: Stage, access: Access, machine: CpuMachine) -> bool:
    """Panels of weights come from memory, one while another is in use."""
    is_weights = access is stage.vector_load and stage.is_product and not stage.is_part
    return is_weights and access.buffer_bytes > machine.l2_working_set // 2 and not stage.has_window


def _readings(stage: Stage, access: Access) -> int:
    """For how many elements of the result each one of an operand is read."""
    return math.prod(axis.extent or 64 for axis in stage.spatial if not access.uses(axis.var))


def _runs(loads: Sequence[_Load], vector: int) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring axes that move the same loads, none of which has the vector axis: those hold one operand."""
    kinds = [tuple(load.moves(axis) for load in loads) for axis in range(vector)]
    streams = [not any(load.moves(axis) and load.moves(vector) for load in loads) for axis in range(vector)]
    for first, last in itertools.combinations(range(vector + 1), 2):
        if all(streams[first:last]) and len(set(kinds[first:last])) == 1 and any(kinds[first]):
            yield first, last


def _together(strides: tuple[int | None, ...], first: int, last: int) -> tuple[int | None, ...]:
    middle = None if any(s != 0 for s in strides[first:last]) else 0
    return (*strides[:first], middle, *strides[last:])


@cache
def _best(
    problem: _Problem,
    axes: tuple[int | None, ...],
    machine: CpuMachine,
    *,
    whole: bool = False,
    one_vector: bool = False,
    held: int | None = None,
) -> tuple[float, Tile] | None:
    """The cheapest tile over ``axes``, given by their extents, the last one in vectors; and its cycles.

    ``whole``: all of the last axis, ``one_vector``: one vector of it. ``held``: an axis that is held as a whole.
    """
    vector, width = len(axes) - 1, problem.width
    extent = axes[vector]
    strides = [load.strides[vector] for load in problem.loads]
    if extent is None or extent < 2 or not any(strides) or any(stride not in (0, 1, 2) for stride in strides):
        return None
    best: tuple[float, Tile] | None = None
    for lanes in divisors(extent, 4 * width):
        if lanes > width and lanes % width:
            continue  # LLVM cuts such vectors up badly
        if any(period % lanes for period in problem.periods):
            continue  # a vector would lie in two blocks
        extents = [*axes[:-1], 1 if one_vector else extent // lanes]
        for sizes in _sizes(extents, machine.registers, held):
            held_lanes = lanes * sizes[-1]
            if whole and held_lanes != extent:
                continue
            if any(period % held_lanes and held_lanes % period for period in problem.periods):
                continue  # it would begin in the middle of a block
            tile = Tile(vector, lanes, sizes)
            cycles = _cycles(problem, tile, machine)
            if cycles is not None and (best is None or cycles < best[0] - 1e-9):
                best = (cycles, tile)
    return best


def _sizes(extents: Sequence[int | None], registers: int, held: int | None) -> Iterator[tuple[int, ...]]:
    """Tiles of divisors of the extents, with at most ``registers`` accumulators."""
    choices = [[1] if extent is None else list(divisors(extent, _LARGEST)) for extent in extents]
    if held is not None:
        choices[held] = choices[held][-1:]
    for sizes in itertools.product(*choices):
        if math.prod(sizes) <= registers:
            yield sizes


def _spare(stage: Stage, machine: CpuMachine) -> int:
    """Registers besides accumulators and the operand that is held; LLVM needs one more to itself, else it spills.

    Not so in long products, whose addresses and operands are the same in every step.
    """
    is_long = stage.steps >= _LONG and stage.is_product
    return _SPARE if machine.broadcast_operand or is_long else _SPARE + 1


def _cycles(problem: _Problem, tile: Tile, machine: CpuMachine) -> float | None:
    """Cycles per useful multiply-add lane; ``None`` if the tile does not fit the registers."""
    width = problem.width
    vectors = math.ceil(tile.lanes / width)
    pieces = tile.lanes // width + (tile.lanes % width).bit_count()
    count = math.prod(tile.sizes)
    accumulators = vectors * count
    held: list[int] = []
    arriving = _SUPPLY * machine.last_level_bandwidth / machine.clock  # bytes a cycle
    issued, streamed, fresh, supply, elsewhere = 0.0, 0.0, 0.0, 0.0, 0
    for load in problem.loads:
        moved = load.moved(tile)
        stride = load.strides[tile.vector] or 0
        held.append(moved * (vectors if stride else 1))
        issued += moved * (1, pieces, 2 * tile.lanes)[stride]
        touched = _touched(load, tile, machine)
        panel = touched * load.steps
        if panel > machine.l1_working_set // 2:
            streamed += touched / machine.l2_bytes_per_cycle
        if load.readings:  # to L2 for all tiles that share a panel, from there for each
            supply += touched * load.shared(tile) / load.readings / arriving + touched / machine.l2_bytes_per_cycle
        new_rows = not stride and load.total > machine.l2_working_set
        new_panel = stride and problem.has_window and panel > machine.l2_working_set  # with many rows not cut in pieces
        if new_rows or new_panel:
            fresh += touched / machine.vector_bytes
        is_own = problem.is_depthwise and stride and moved == count
        if is_own and tile.lanes * tile.sizes[tile.vector] < load.run:
            elsewhere += moved // tile.sizes[tile.vector]
    if accumulators + min(held) + problem.spare > machine.registers:
        return None
    cycles = max(
        accumulators / machine.fma_units,
        issued / machine.loads_per_cycle,
        (accumulators + issued) / machine.instructions_per_cycle,
        streamed,
        supply,
        machine.fma_latency,
    )
    cycles += _FRESH * fresh + _STREAMED * streamed + _ELSEWHERE * elsewhere + 0.02 * issued
    small = sum(1 for axis, size in enumerate(tile.sizes) if size > 1 and axis != tile.vector)
    rows = math.prod(tile.sizes[: max(0, tile.vector - 1)])  # of the result, far from each other
    return (cycles + 0.05 * small + 0.04 * rows) / (tile.lanes * count)


def _touched(load: _Load, tile: Tile, machine: CpuMachine) -> int:
    """Bytes that a step of a tile moves to L1."""
    moved = load.moved(tile)
    stride = load.strides[tile.vector] or 0
    touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
    if stride and tile.lanes * tile.sizes[tile.vector] < load.run:  # the rest of a line is of no use yet
        return max(touched, moved // tile.sizes[tile.vector] * machine.line_bytes)
    return touched
