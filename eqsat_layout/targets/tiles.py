"""Register tiles: which accumulators of a reduction are kept in registers at once (targets room).

In: the facts of a reduction stage and the machine. Out: the lanes of the vector axis and the tile of every spatial
axis that keep the arithmetic units busiest by a small model of registers, loads and latency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.stages import Access, Axis, Stage, divisors

_LATENCY = 4.0  # cycles of a fused multiply-add; two start every cycle
_LARGEST = 28  # accumulators along one axis


@dataclass(frozen=True)
class Tile:
    """``lanes`` elements of axis ``vector`` at a time; ``sizes[i]`` of axis ``i`` (for the vector axis: vectors)."""

    vector: int
    lanes: int
    sizes: tuple[int, ...]


def register_tile(stage: Stage, machine: Machine, *, whole: bool = False) -> Tile | None:
    """The best tile of ``stage`` with its last spatial axis in vectors; ``None`` if that axis does not vectorise.

    ``whole``: only tiles that hold all of that axis.
    """
    spatial = stage.spatial
    return _best(stage, spatial, spatial[-1].extent, machine, whole) if spatial else None


def lane_tile(stage: Stage, machine: Machine) -> Tile | None:
    """The best tile with the last reduction axis in vectors: ``sizes`` has one entry more, 1, for that axis."""
    return _best(stage, (*stage.spatial, stage.reduced[-1]), None, machine) if stage.reduced else None


def _best(stage: Stage, axes: Sequence[Axis], tiled: int | None, machine: Machine, whole: bool = False) -> Tile | None:
    """The cheapest tile over ``axes``, the last in vectors; ``tiled``: its extent if several vectors may be held."""
    vector = len(axes) - 1
    extent = axes[vector].extent
    loads = [_load_of(access, stage, axes) for access in stage.loads]
    if extent is None or extent < 2 or not any(load.strides[vector] for load in loads):
        return None
    if any(load.strides[vector] not in (0, 1, 2) for load in loads):
        return None
    width = machine.lanes(stage.write.element_bytes)
    periods = [period for access in stage.loads if (period := access.period(axes[vector].var))]
    best: tuple[float, Tile] | None = None
    for lanes in divisors(extent, 4 * width):
        if lanes > width and lanes % width:
            continue  # LLVM cuts such vectors up badly
        if any(period % lanes for period in periods):
            continue  # a vector would lie in two blocks
        extents = [*(a.extent for a in axes[:-1]), (tiled or lanes) // lanes]
        for sizes in _sizes(extents, machine.registers):
            if whole and lanes * sizes[-1] != extent:
                continue
            tile = Tile(vector, lanes, sizes)
            cycles = _cycles(loads, tile, width, machine)
            if cycles is not None and (best is None or cycles < best[0] - 1e-9):
                best = (cycles, tile)
    return best[1] if best else None


@dataclass(frozen=True)
class _Load:
    """Strides along the spatial axes, the steps of the reduction that touch new elements, bytes of an element."""

    strides: tuple[int | None, ...]
    steps: int
    element_bytes: int

    def moves(self, axis: int) -> bool:
        return self.strides[axis] != 0


def _load_of(access: Access, stage: Stage, axes: Sequence[Axis]) -> _Load:
    steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
    return _Load(tuple(access.stride(a.var) for a in axes), steps, access.element_bytes)


def _sizes(extents: Sequence[int | None], registers: int) -> Iterator[tuple[int, ...]]:
    """Tiles of divisors of the extents, with at most ``registers`` accumulators."""
    choices = [[1] if extent is None else list(divisors(extent, _LARGEST)) for extent in extents]
    for sizes in itertools.product(*choices):
        if math.prod(sizes) <= registers:
            yield sizes


def _cycles(loads: Sequence[_Load], tile: Tile, width: int, machine: Machine) -> float | None:
    """Cycles per useful multiply-add lane; ``None`` if the tile does not fit the registers."""
    vectors = math.ceil(tile.lanes / width)
    pieces = tile.lanes // width + (tile.lanes % width).bit_count()
    count = math.prod(tile.sizes)
    accumulators = vectors * count
    held: list[int] = []
    issued, streamed = 0.0, 0.0
    for load in loads:
        moved = math.prod(size for axis, size in enumerate(tile.sizes) if load.moves(axis))
        stride = load.strides[tile.vector] or 0
        held.append(moved * (vectors if stride else 1))
        issued += moved * (1, pieces, 2 * tile.lanes)[stride]
        touched = moved * (tile.lanes * stride if stride else 1) * load.element_bytes
        if touched * load.steps > machine.l1_bytes // 2:
            streamed += touched / machine.vector_bytes
    spare = 0 if machine.broadcast_operand else 1
    if accumulators + min(held) + spare > machine.registers:
        return None
    cycles = max(accumulators / 2, issued / 2, streamed, _LATENCY)
    small = sum(1 for axis, size in enumerate(tile.sizes) if size > 1 and axis != tile.vector)
    return (cycles + 0.1 * streamed + 0.02 * issued + 0.05 * small) / (tile.lanes * count)
