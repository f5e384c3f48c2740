"""Register tiles: which accumulators of a reduction are kept in registers at once (targets room).

In: the facts of a reduction stage and the machine. Out: the lanes of the vector axis and the tile of every spatial
axis that keep the arithmetic units busiest by a small model of registers, loads and latency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.stages import Axis, Stage, divisors

_LATENCY = 4.0  # cycles of a fused multiply-add; two start every cycle
_LOADS = 1.5  # loads and broadcasts a cycle, beside the arithmetic (measured on AVX2: 1.45 to 1.5)
_ISSUED = 2.75  # instructions a cycle in all (measured on AVX2, the neighbours of a shared machine included)
_SPARE = 1  # registers for the operand that is not held
_LONG = 32  # steps of a product so long that LLVM does not write it out
_PANEL = 0.5  # of the second cache, for what one panel of a reduction reads
_PIECE = 0.25  # the same where it must be cut, so that the next piece has room
_LARGEST = 28  # accumulators along one axis
_ADDRESSES = 200.0  # cycles to compute those of a tile over joined axes
_EDGE = 60.0  # the same for a tile along one axis that it does not divide
_STREAMED = 0.1  # of the cycles that moving memory to the first cache takes is not hidden
_WINDOW_ADDRESSES = 1.1  # times as long as other tiles take where these change with every element of a window


@dataclass(frozen=True)
class Tile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class JoinedTile:
    """``size`` elements at a time of the spatial axes ``first`` to ``last`` (not included) taken as one axis.

    ``size`` need not divide their number: the last tile overlaps the one before.
    """

    first: int
    last: int
    size: int


def register_tile(stage: Stage, machine: Machine, *, whole: bool = False) -> Tile | None:
    """The best tile of ``stage`` with its last spatial axis in vectors; ``None`` if that axis does not vectorise.

    ``whole``: only tiles that hold all of that axis.
    """
    spatial = stage.spatial
    if not spatial:
        return None
    found = _best(stage, _loads_of(stage, spatial), [a.extent for a in spatial], spatial[-1], machine, whole=whole)
    return found[1] if found else None


def lane_tile(stage: Stage, machine: Machine) -> Tile | None:
    """The best tile with the last reduction axis in vectors: ``sizes`` has one entry more, 1, for that axis."""
    if not stage.reduced:
        return None
    axes = (*stage.spatial, stage.reduced[-1])
    extents = [a.extent for a in axes]
    found = _best(stage, _loads_of(stage, axes), extents, axes[-1], machine, one_vector=True)
    return found[1] if found else None


def joined_tile(stage: Stage, machine: Machine) -> JoinedTile | None:
    """The best tile over joined axes, or over an axis that it does not divide; ``None`` where a plain one is as good.

    That of the vector axis comes first, if both it and others are to be cut so: ask again after.
    """
    if not stage.spatial or any(axis.extent is None for axis in stage.spatial):
        return None
    loads = _loads_of(stage, stage.spatial)
    extents = [a.extent or 1 for a in stage.spatial]
    vector = len(extents) - 1
    width = machine.lanes(stage.write.element_bytes)
    plain = _best(stage, loads, extents, stage.spatial[-1], machine)
    best: _Costed = (plain[0] if plain else math.inf, None)
    best = min(best, _joined(stage, loads, extents, machine), key=_cost)
    for size in (width, 2 * width, 4 * width):
        if width < 2 or size > extents[vector] or extents[vector] % size == 0:
            continue
        cut = [*extents[:vector], size]
        inside = _best(stage, loads, cut, stage.spatial[-1], machine)
        cost = min(inside[0] if inside else math.inf, _joined(stage, loads, cut, machine)[0])
        best = min(best, (cost * _waste(extents[vector], size), JoinedTile(vector, vector + 1, size)), key=_cost)
    return best[1]


def tile_cycles(stage: Stage, machine: Machine, *, joined: bool = False) -> float | None:
    """Cycles per step and element with the best register tile; ``None`` if the last spatial axis does not vectorise.

    ``joined``: with tiles over joined axes too.
    """
    if not stage.spatial:
        return None
    loads = _loads_of(stage, stage.spatial)
    extents = [a.extent for a in stage.spatial]
    found = _best(stage, loads, extents, stage.spatial[-1], machine)
    costs = [found[0]] if found else []
    if joined and None not in extents:
        costs.append(_joined(stage, loads, [extent or 1 for extent in extents], machine)[0])
    best = min(costs, default=math.inf)
    return best if best < math.inf else None


def reduction_pieces(stage: Stage, tile: Tile, machine: Machine) -> int:
    """In how many pieces the outermost axis of a reduction is done, for a panel of them to fit the second cache.

    One for windows: 512 channels at 3x3 with strides of 2 gain a tenth for one image and lose a third for eight.
    """
    if stage.has_window:
        return 1
    loads = _loads_of(stage, stage.spatial)
    panel = max((_touched(load, tile, machine) * load.steps for load in loads if load.strides[tile.vector]), default=0)
    outermost = stage.reduced[0].extent or 1
    if panel <= _PANEL * machine.l2_bytes:
        return 1
    fit = [d for d in divisors(outermost, outermost) if panel <= d * _PIECE * machine.l2_bytes]
    return min(fit, default=1)


_Costed = tuple[float, JoinedTile | None]


def _cost(costed: _Costed) -> float:
    return round(costed[0], 9)


def _joined(stage: Stage, loads: Sequence[_Load], extents: Sequence[int], machine: Machine) -> _Costed:
    """The best tile over axes other than that in vectors, and its cycles."""
    best: _Costed = (math.inf, None)
    for first, last in _runs(stage, loads):
        elements = math.prod(extents[first:last])
        joined = [replace(load, strides=_together(load.strides, first, last)) for load in loads]
        for size in range(2, min(elements, machine.registers) + 1):
            given = [*extents[:first], size, *extents[last:]]
            found = _best(stage, joined, given, stage.spatial[-1], machine, held=first)
            if found is not None:
                cycles, tile = found
                cycles *= _waste(elements, size) * (_WINDOW_ADDRESSES if stage.has_window else 1)
                addresses = _EDGE if last == first + 1 else _ADDRESSES
                cycles += addresses / (stage.steps * tile.lanes * math.prod(tile.sizes))
                best = min(best, (cycles, JoinedTile(first, last, size)), key=_cost)
    return best


def _waste(elements: int, size: int) -> float:
    """How many times as many elements are computed by tiles of ``size`` that overlap."""
    return math.ceil(elements / size) * size / elements


@dataclass(frozen=True)
class _Load:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element.

    ``run``: elements along the last axis before memory goes on elsewhere.
    """

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int
    run: int

    def moves(self, axis: int) -> bool:
        return self.strides[axis] != 0

    def moved(self, tile: Tile) -> int:
        """Elements that a step of a tile reads, vectors counted as one."""
        return math.prod(size for axis, size in enumerate(tile.sizes) if self.moves(axis))


def _loads_of(stage: Stage, axes: Sequence[Axis]) -> list[_Load]:
    found: list[_Load] = []
    for access in stage.loads:
        steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
        run = access.period(axes[-1].var) or axes[-1].extent or 1
        found.append(_Load(tuple(access.stride(a.var) for a in axes), steps, access.element_bytes, run))
    return found


def _runs(stage: Stage, loads: Sequence[_Load]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring axes that move the same loads, none of which has the vector axis: those hold one operand."""
    vector = len(stage.spatial) - 1
    kinds = [tuple(load.moves(axis) for load in loads) for axis in range(vector)]
    streams = [not any(load.moves(axis) and load.moves(vector) for load in loads) for axis in range(vector)]
    for first, last in itertools.combinations(range(vector + 1), 2):
        if all(streams[first:last]) and len(set(kinds[first:last])) == 1 and any(kinds[first]):
            yield first, last


def _together(strides: tuple[int | None, ...], first: int, last: int) -> tuple[int | None, ...]:
    middle = None if any(s != 0 for s in strides[first:last]) else 0
    return (*strides[:first], middle, *strides[last:])


def _best(
    stage: Stage,
    loads: Sequence[_Load],
    axes: Sequence[int | None],
    last: Axis,
    machine: Machine,
    *,
    whole: bool = False,
    one_vector: bool = False,
    held: int | None = None,
) -> tuple[float, Tile] | None:
    """The cheapest tile over ``axes``, given by their extents, ``last`` in vectors; and its cycles.

    ``whole``: all of the last axis, ``one_vector``: one vector of it. ``held``: an axis that is held as a whole.
    """
    vector = len(axes) - 1
    extent = axes[vector]
    if extent is None or extent < 2 or not any(load.strides[vector] for load in loads):
        return None
    if any(load.strides[vector] not in (0, 1, 2) for load in loads):
        return None
    width = machine.lanes(stage.write.element_bytes)
    periods = [period for access in stage.loads if (period := access.period(last.var))]
    spare = _spare(stage, machine)
    best: tuple[float, Tile] | None = None
    for lanes in divisors(extent, 4 * width):
        if lanes > width and lanes % width:
            continue  # LLVM cuts such vectors up badly
        if any(period % lanes for period in periods):
            continue  # a vector would lie in two blocks
        extents = [*axes[:-1], 1 if one_vector else extent // lanes]
        for sizes in _sizes(extents, machine.registers, held):
            held_lanes = lanes * sizes[-1]
            if whole and held_lanes != extent:
                continue
            if any(period % held_lanes and held_lanes % period for period in periods):
                continue  # it would begin in the middle of a block
            tile = Tile(vector, lanes, sizes)
            cycles = _cycles(loads, tile, width, machine, spare)
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


def _spare(stage: Stage, machine: Machine) -> int:
    """Registers besides accumulators and the operand that is held; LLVM needs one more to itself, else it spills.

    Not so in long products of matrices, whose addresses and operands are the same in every step.
    """
    is_product = stage.steps >= _LONG and not stage.has_window
    return _SPARE if machine.broadcast_operand or is_product else _SPARE + 1


def _cycles(loads: Sequence[_Load], tile: Tile, width: int, machine: Machine, spare: int) -> float | None:
    """Cycles per useful multiply-add lane; ``None`` if the tile does not fit the registers."""
    vectors = math.ceil(tile.lanes / width)
    pieces = tile.lanes // width + (tile.lanes % width).bit_count()
    count = math.prod(tile.sizes)
    accumulators = vectors * count
    held: list[int] = []
    issued, streamed = 0.0, 0.0
    for load in loads:
        moved = load.moved(tile)
        stride = load.strides[tile.vector] or 0
        held.append(moved * (vectors if stride else 1))
        issued += moved * (1, pieces, 2 * tile.lanes)[stride]
        touched = _touched(load, tile, machine)
        if touched * load.steps > machine.l1_bytes // 2:
            streamed += touched / machine.vector_bytes
    if accumulators + min(held) + spare > machine.registers:
        return None
    cycles = max(accumulators / 2, issued / _LOADS, (accumulators + issued) / _ISSUED, streamed, _LATENCY)
    small = sum(1 for axis, size in enumerate(tile.sizes) if size > 1 and axis != tile.vector)
    rows = math.prod(tile.sizes[: max(0, tile.vector - 1)])  # of the result, far from each other
    return (cycles + _STREAMED * streamed + 0.02 * issued + 0.05 * small + 0.04 * rows) / (tile.lanes * count)


def _touched(load: _Load, tile: Tile, machine: Machine) -> int:
    """Bytes that a step of a tile moves to the first cache."""
    moved = load.moved(tile)
    stride = load.strides[tile.vector] or 0
    touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
    if stride and tile.lanes * tile.sizes[tile.vector] < load.run:  # the rest of a line is of no use yet
        return max(touched, moved // tile.sizes[tile.vector] * machine.line_bytes)
    return touched
