"""Register tiles: which accumulators of a reduction are kept in registers at once.

In: the facts of a reduction and the machine. Out: the lanes of the vector axis and the tile of every spatial axis that
keep the arithmetic units busiest, by a small model of registers, loads and latency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.core_sharing import cut_into, pieces_of, shared_tiles
from eqsat_layout.targets.cpu.model.operand_loads import OperandLoad, bytes_to_l1
from eqsat_layout.targets.cpu.model.tile_choices import LARGEST, cheapest_tiles
from eqsat_layout.targets.cpu.model.tile_problem import LONG, TileProblem, problem_of, readings
from eqsat_layout.targets.cpu.model.tiles import RegisterTile
from eqsat_layout.targets.schedules.stages import Stage, divisors

_PANEL = 0.25  # of the working set of L2, for what one panel of a reduction reads: the next one must have room
_PIECE = 0.0625  # of it, for a piece of such a panel that few rows share: the first one is waited for
_FEW_ROWS = 320  # elements that share a panel: for more, waiting for its first piece counts little
_DEPTHWISE_WASTE = 1.15  # times as many elements as there are: beyond, short vectors are as fast for depthwise windows
_SHORTEST = 4  # lanes of such vectors
_ADDRESSES = 60.0  # cycles to compute those of a tile over joined axes, or that overlaps
_BLOCKS = (2, 3)  # of vectors that tiles may hold, and of which the last may overlap the ones before
_ROW_START = 10.0  # to compute that of one of a row of a depthwise window's places, which overlaps


@dataclass(frozen=True)
class JoinedTile:
    """``size`` elements at a time of the spatial axes ``first`` to ``last`` (not included) taken as one axis.

    ``size`` need not divide their number: the last tiles overlap the one before. ``count``: of tiles.
    """

    first: int
    last: int
    size: int
    count: int


def register_tile(stage: Stage, machine: CpuMachine, *, whole: bool = False) -> RegisterTile | None:
    """The best tile of ``stage`` with its last spatial axis in vectors; ``None`` if that axis does not vectorise.

    ``whole``: only tiles that hold all of that axis.
    """
    spatial = stage.spatial
    if not spatial:
        return None
    if (known := _matrix_tile(stage, machine, whole=whole)) is not None:
        return known[1]
    found = _best(problem_of(stage, spatial, machine), tuple(a.extent for a in spatial), machine, whole=whole)
    return found[1] if found else None


def lane_tile(stage: Stage, machine: CpuMachine) -> RegisterTile | None:
    """The best tile with the last reduction axis in vectors: ``sizes`` has one entry more, 1, for that axis."""
    found = _lane_tile(stage, machine)
    return found[1] if found else None


def lane_tile_cycles(stage: Stage, machine: CpuMachine) -> float | None:
    """Cycles per step and element with that tile, and with adding up the lanes of each result one by one."""
    found = _lane_tile(stage, machine)
    if found is None or any(axis.extent is None for axis in stage.reduced):
        return None
    steps = math.prod(axis.extent or 1 for axis in stage.reduced)
    return found[0] + found[1].lanes / steps


def _lane_tile(stage: Stage, machine: CpuMachine) -> tuple[float, RegisterTile] | None:
    if not stage.reduced:
        return None
    axes = (*stage.spatial, stage.reduced[-1])
    extents = tuple(a.extent for a in axes)
    return _best(problem_of(stage, axes, machine), extents, machine, one_vector=True)


def joined_tile(stage: Stage, machine: CpuMachine) -> JoinedTile | None:
    """The best tile over joined axes, or over an axis that it does not divide; ``None`` where a plain one is as good.

    That of the vector axis comes first, if both it and others are to be cut so: ask again after.
    """
    return _any_tile(stage, machine)[1]


def any_tile_cycles(stage: Stage, machine: CpuMachine) -> float | None:
    """Cycles per step and element with the best tile of any kind; ``None`` where none has vectors."""
    best = _any_tile(stage, machine)[0]
    return best if best < math.inf else None


def _any_tile(stage: Stage, machine: CpuMachine) -> _Costed:
    """Cycles of the best tile, and that one, if it is no plain one."""
    if not stage.spatial:
        return math.inf, None
    if (known := _matrix_tile(stage, machine)) is not None:
        return known[0], None
    problem = problem_of(stage, stage.spatial, machine)
    if any(axis.extent is None for axis in stage.spatial):
        plain = _best(problem, tuple(a.extent for a in stage.spatial), machine)
        return plain[0] if plain else math.inf, None
    extents = tuple(a.extent or 1 for a in stage.spatial)
    vector = len(extents) - 1
    plain = _best(problem, extents, machine)
    best: _Costed = (plain[0] if plain else math.inf, None)
    best = min(best, _joined(problem, extents, machine), key=_cost)
    for axis, size in (*((vector, size) for size in _cuts(problem, extents[vector])), *_few_blocks(problem, extents)):
        count = math.ceil(extents[axis] / size)
        pieces, cut = _in_overlapping_pieces(problem, axis), (*extents[:axis], count, size, *extents[axis + 1 :])
        inside = _best(pieces, cut, machine)
        cost = min(inside[0] if inside else math.inf, _joined(pieces, cut, machine)[0])
        best = min(best, (cost * _waste(extents[axis], size), JoinedTile(axis, axis + 1, size, count)), key=_cost)
    return best


def _few_blocks(problem: TileProblem, extents: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Axes of blocks of vectors of a product, and how many blocks tiles may hold that do not divide them."""
    vector = len(extents) - 1
    for axis, extent in enumerate(() if problem.is_depthwise else extents[:vector]):
        moved = [load for load in problem.loads if load.moves(axis)]
        if len(moved) == 1 < len(problem.loads) and moved[0].strides[vector] and moved[0].strides[axis] is not None:
            yield from ((axis, size) for size in _BLOCKS if size < extent and extent % size)


def _in_overlapping_pieces(problem: TileProblem, axis: int) -> TileProblem:
    """The problem with an axis more, which numbers pieces of ``axis`` that overlap: tiles may hold several."""

    def cut(load: OperandLoad) -> OperandLoad:
        *before, along = load.strides[: axis + 1]  # the last piece begins where it has to
        strides, again = (*before, None if along else 0, along, *load.strides[axis + 1 :]), load.met_again
        if again is not None and again.axis > axis:
            again = replace(again, axis=again.axis + 1)
        return replace(load, strides=strides, met_again=again)

    return replace(problem, loads=tuple(map(cut, problem.loads)))


def _cuts(problem: TileProblem, extent: int) -> list[int]:
    """Elements of the axis in vectors that a tile may have which does not divide it."""
    if problem.width < 2:
        return []
    if not problem.is_depthwise:
        sizes = [problem.width * vectors for vectors in (1, 2, 4)]
    else:
        # tails would be other kernels: short vectors overlap
        lanes = (problem.width >> halvings for halvings in range(3))
        few = (size for size in lanes if _SHORTEST <= size <= extent and _waste(extent, size) < _DEPTHWISE_WASTE)
        sizes = list(itertools.islice(few, 1))
    return [size for size in sizes if size <= extent and extent % size]


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
    problem = problem_of(stage, stage.spatial, machine)
    extents = tuple(a.extent for a in stage.spatial)
    found = _best(problem, extents, machine)
    costs = [found[0]] if found else []
    if joined and None not in extents:
        costs.append(_joined(problem, tuple(extent or 1 for extent in extents), machine)[0])
    best = min(costs, default=math.inf)
    return best if best < math.inf else None


def reduction_pieces(stage: Stage, tile: RegisterTile, machine: CpuMachine) -> int:
    """In how many pieces the outermost axis of a reduction is done, for a panel of them to fit L2.

    One for windows of many rows: 512 channels at 3x3 gain a fifth for one image of 7x7 and lose a third for eight.
    """
    if stage.matrix is not None or _is_long_window(stage):
        return 1
    weights = stage.vector_load
    loads = [load for load in problem_of(stage, stage.spatial, machine).loads if load.strides[tile.vector]]
    panel = max((bytes_to_l1(load, tile, machine) * load.steps for load in loads), default=0)
    if weights is None or panel < _PANEL * machine.l2_working_set:
        return 1
    most = (_PIECE if readings(stage, weights) <= _FEW_ROWS else _PANEL) * machine.l2_working_set
    outermost = stage.reduced[0].extent or 1
    fit = [d for d in divisors(outermost, outermost) if panel <= d * _PANEL * machine.l2_working_set]
    long = [d for d in fit if stage.steps // d >= LONG] or [1]
    return next((d for d in long if panel <= d * most), long[-1])


def _is_long_window(stage: Stage) -> bool:
    """A reduction over a window for so many elements that its panels are not cut in pieces."""
    weights = stage.vector_load
    return stage.has_window and (weights is None or readings(stage, weights) > _FEW_ROWS)


def _matrix_tile(stage: Stage, machine: CpuMachine, *, whole: bool = False) -> tuple[float, RegisterTile] | None:
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
    tile = RegisterTile(vector, lanes, tuple(size or 1 for size in sizes))
    count = math.prod(tile.sizes)
    if lanes < min(width, extent) // 2 or count > LARGEST:
        return None
    rows = math.prod(tile.sizes[:vector])
    operations = max(0, int((stage.matrix.elements != 0).sum()) - rows)
    issued, passes = operations + stage.steps + rows, machine.passes(lanes * stage.write.element_bytes)
    units = max(operations / machine.fma_units, rows / machine.stores_per_cycle) * passes
    cycles = max(units, issued / machine.instructions_per_cycle)
    return cycles / (lanes * rows * stage.steps), tile


_Costed = tuple[float, JoinedTile | None]


def _cost(costed: _Costed) -> float:
    return round(costed[0], 9)


def _joined(problem: TileProblem, extents: tuple[int, ...], machine: CpuMachine) -> _Costed:
    """The best tile over axes other than that in vectors, and its cycles."""
    best: _Costed = (math.inf, None)
    rows = list(_rows(problem))
    for first, last in (*_runs(problem.loads, len(extents) - 1), *rows):
        elements = math.prod(extents[first:last])
        together = replace(problem, loads=tuple(_together(load, first, last) for load in problem.loads))
        counts = range(2, min(elements, machine.registers) + 1)
        given = tuple((*extents[:first], size, *extents[last:]) for size in counts)
        for size, found in zip(counts, cheapest_tiles(together, given, machine, held=first), strict=True):
            if found is not None:
                cycles, tile = found
                cycles *= _waste(elements, size)
                addresses = _ROW_START if (first, last) in rows else _ADDRESSES
                cycles += addresses / (problem.steps * tile.lanes * math.prod(tile.sizes))
                best = min(best, (cycles, JoinedTile(first, last, size, math.ceil(elements / size))), key=_cost)
    return best


def _waste(elements: int, size: int) -> float:
    """How many times as many elements are computed by tiles of ``size`` that overlap."""
    return math.ceil(elements / size) * size / elements


def _runs(loads: Sequence[OperandLoad], vector: int) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring axes that move the same loads, none of which has the vector axis: those hold one operand."""
    kinds = [tuple(load.moves(axis) for load in loads) for axis in range(vector)]
    streams = [not any(load.moves(axis) and load.moves(vector) for load in loads) for axis in range(vector)]
    for first, last in itertools.combinations(range(vector + 1), 2):
        if all(streams[first:last]) and len(set(kinds[first:last])) == 1 and any(kinds[first]):
            yield first, last


def _rows(problem: TileProblem) -> Iterator[tuple[int, int]]:
    """The axis of a depthwise window's rows, alone: tiles that overlap where none divides it."""
    if problem.is_depthwise:
        yield from ((load.met_again.axis, load.met_again.axis + 1) for load in problem.loads if load.met_again)


def _together(load: OperandLoad, first: int, last: int) -> OperandLoad:
    """The load over tiles in which these axes are one. Neighbours along that are no longer those along a row."""
    strides, again = load.strides, load.met_again
    innermost = next((stride for stride in reversed(strides[first:last]) if stride != 0), 0)
    if again is not None and again.axis >= last:
        again = replace(again, axis=again.axis - (last - first - 1))
    elif again is not None and first <= again.axis and last - first > 1:
        again = None
    return replace(load, strides=(*strides[:first], innermost, *strides[last:]), met_again=again)


def _best(
    problem: TileProblem,
    axes: tuple[int | None, ...],
    machine: CpuMachine,
    *,
    whole: bool = False,
    one_vector: bool = False,
) -> tuple[float, RegisterTile] | None:
    """The cheapest tile over ``axes``, given by their extents, the last one in vectors; and its cycles.

    ``whole``: all of the last axis, ``one_vector``: one vector of it.
    """
    return cheapest_tiles(problem, (axes,), machine, whole=whole, one_vector=one_vector)[0]
