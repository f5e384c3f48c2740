"""All register tiles that a reduction may have, and which is the cheapest.

In: the facts of a reduction, the extents of its axes and the machine. Out: the tile with the fewest cycles, and these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

import numpy as np

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.tile_cost import tile_step_cycles
from eqsat_layout.targets.cpu.model.tile_problem import TileProblem
from eqsat_layout.targets.cpu.model.tiles import Numbers, RegisterTile, Tiles
from eqsat_layout.targets.schedules.stages import divisors

LARGEST = 28
"""Accumulators along one axis: with operands, more fill the registers of any machine."""

_REMEMBERED = 1024  # lists of tiles
_FEW = 4  # times as few lanes as a register has, which are not worth a vector

Extents = tuple[int | None, ...]


@cache
def cheapest_tiles(
    problem: TileProblem,
    axes: tuple[Extents, ...],
    machine: CpuMachine,
    *,
    whole: bool = False,
    one_vector: bool = False,
    held: int | None = None,
) -> tuple[tuple[float, RegisterTile] | None, ...]:
    """For each of ``axes``, which differ in extents but not the last one, the cheapest tile and its cycles.

    ``whole``: all of the last axis, ``one_vector``: one vector of it. ``held``: an axis that is held as a whole.
    """
    strides = {load.strides[-1] for load in problem.loads}
    if not axes or (axes[0][-1] or 0) < 2 or not strides <= {0, 1, 2} or strides == {0}:
        return (None,) * len(axes)
    choices = [_tiles(extents, problem, machine.registers, one_vector=one_vector, held=held) for extents in axes]
    if whole:
        choices = [tiles.where(tiles.lanes * tiles.sizes[-1] == axes[0][-1]) for tiles in choices]
    cycles = iter(tile_step_cycles(problem, Tiles.of_all(choices), machine))
    found: list[tuple[float, RegisterTile] | None] = []
    for tiles in choices:
        best, number = math.inf, None
        for n, count in zip(range(len(tiles.lanes)), cycles, strict=False):
            if count < best - (0 if number is None else 1e-9):  # of those that differ by rounding only, the first
                best, number = count, n
        found.append(None if number is None else (best, tiles[number]))
    return tuple(found)


def _tiles(extents: Extents, problem: TileProblem, registers: int, *, one_vector: bool, held: int | None) -> Tiles:
    """Those of which neither vectors nor blocks of them begin in the middle of a load's block and end in another."""
    width, extent = problem.width, extents[-1] or 1
    all_lanes = [np.zeros(0, np.int64)]
    sizes = [np.zeros((len(extents), 0), np.int64)]
    for lanes in _lanes(extent, width, is_product=len(problem.loads) > 1):
        if one_vector and lanes == 3 * width:
            continue  # and keeps these on the stack, as their lanes are added up one by one
        if any(period % lanes for period in problem.periods):
            continue  # a vector would lie in two blocks
        found = _sizes((*extents[:-1], 1 if one_vector else extent // lanes), registers, held)
        sizes.append(found)
        all_lanes.append(np.full(found.shape[1], lanes))
    tiles = Tiles(len(extents) - 1, np.concatenate(all_lanes), tuple(np.concatenate(sizes, axis=1)))
    for period in problem.periods:
        block = tiles.lanes * tiles.sizes[-1]
        tiles = tiles.where((period % block == 0) | (block % period == 0))
    return tiles


def _lanes(extent: int, width: int, *, is_product: bool) -> Sequence[int]:
    """Of vectors that divide ``extent``: parts of registers, whole ones, or all of a row that has no better part.

    LLVM cuts other vectors up badly: products in them took four times as long, where their tiles may overlap instead.
    """
    choices = divisors(extent, 4 * width)
    good = [lanes for lanes in choices if lanes <= width or lanes % width == 0]
    is_odd = extent in choices and _FEW * max(good) <= width
    return [*good, extent] if is_odd and extent not in good and not is_product else good


def _sizes(extents: Extents, registers: int, held: int | None) -> Numbers:
    """Tiles of divisors of the extents, with at most ``registers`` accumulators: a row for each axis."""
    if held is None:
        return _all_sizes(extents, registers)
    size = divisors(extents[held] or 1, LARGEST)[-1]
    others = _all_sizes((*extents[:held], *extents[held + 1 :]), registers // size)
    row = np.full((1, others.shape[1]), size)
    return np.concatenate([others[:held], row, others[held:]])


@lru_cache(_REMEMBERED)
def _all_sizes(extents: Extents, registers: int) -> Numbers:
    found: list[tuple[int, ...]] = [()]
    for extent in extents:
        choices = (1,) if extent is None else divisors(extent, LARGEST)
        found = [(*sizes, size) for sizes in found for size in _up_to(choices, registers // math.prod(sizes))]
    return np.array(found, np.int64).reshape(len(found), len(extents)).T


def _up_to(ascending: Iterable[int], most: int) -> Iterable[int]:
    return itertools.takewhile(lambda number: number <= most, ascending)
