"""Reductions along memory: partial results in the lanes of a vector, or results side by side.

In: a schedule and a reduction without a vector axis among those of its result. Out: the schedule changed in place.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import lane_tile
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.tiled_reduction import is_one_sum
from eqsat_layout.targets.cpu.single.loops import parallel_tiles
from eqsat_layout.targets.cpu.single.tile_loops import (
    axis_loops,
    partial_results,
    reduce_lanes,
    reduce_side_by_side,
    refuse_partial_results,
)
from eqsat_layout.targets.cpu.single.tile_order import outer_order
from eqsat_layout.targets.schedules.stages import Stage, cached_write, divisors


def _in_lanes(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """A reduction along contiguous memory: a vector of partial results, then across its lanes."""
    refuse_partial_results(machine)
    tile = lane_tile(stage, machine)
    if tile is None or tile.lanes < 2:
        raise Refused("no vector axis")
    count = len(stage.spatial)
    _, reduced = axis_loops(sch, stage)
    _, lane = sch.split(reduced[-1], [None, tile.lanes])
    partial = partial_results(sch, lane, stage)
    sch.set_scope(partial, 0, "local")
    outer: list[Any] = []
    inner: list[Any] = []
    across = sch.get_loops(stage.block)
    for loop, size in zip(across[:count], tile.sizes, strict=False):
        head, small = sch.split(loop, [None, size])
        outer.append(head)
        inner.append(small)
    order = outer_order(stage)
    outer = [outer[i] for i in order]
    sch.reorder(*outer, *inner, *across[count:])
    for loop in (*inner, *across[count:]):
        sch.unroll(loop)
    is_one_element = not outer
    at = sch.add_unit_loop(across[0]) if is_one_element else parallel_tiles(sch, outer, machine, stage)
    sch.compute_at(partial, at, preserve_unit_loops=True)
    reduce_lanes(sch, partial)


def _side_by_side(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """A reduction that no vector divides: results side by side, so that none waits for the sum of the one before."""
    left = machine.sums_in_flight
    sizes: list[int] = []
    for axis in reversed(stage.spatial):
        sizes.insert(0, max(divisors(axis.extent or 1, left)))
        left //= sizes[0]
    if left == machine.sums_in_flight:
        raise Refused("no results side by side")
    out = cached_write(sch, stage.block, "local")
    pairs = [sch.split(loop, [None, size]) for loop, size in zip(sch.get_loops(out), sizes, strict=True)]
    outer, inner = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    sch.reorder(*outer, *inner)
    for loop in inner:
        sch.unroll(loop)
    at = parallel_tiles(sch, outer, machine, stage)
    sch.compute_at(stage.block, at, preserve_unit_loops=True)
    reduce_side_by_side(sch, stage.block)


LANES = Family("partial results in lanes", _in_lanes, lambda stage, _: is_one_sum(stage))
SIDE_BY_SIDE_RESULTS = Family(
    "results side by side", _side_by_side, lambda stage, _: is_one_sum(stage), has_vectors=False
)
