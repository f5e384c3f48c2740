"""Register tiles over several axes at once, or tiles that overlap, where these use the registers better.

In: a schedule. Out: one whose reductions have such axes joined, each with an epilogue that runs in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tvm

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import (
    JoinedTile,
    any_tile_cycles,
    evenly_shared,
    joined_tile,
    reduction_pieces,
    register_tile,
    tile_cycles,
)
from eqsat_layout.targets.cpu.model.tiles import RegisterTile
from eqsat_layout.targets.cpu.single.join_axes import join_axes
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAxis, as_int, depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.conditions import change_of
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_in_place
from eqsat_layout.targets.schedules.stages import Stage, cached_write, stage_of, stages_of
from eqsat_layout.tir.intrinsics import conjuncts

_JOINS = 2  # one of the vector axis or of blocks of vectors, and one of others


def join_tiles(sch: Any, machine: CpuMachine) -> Any:
    """Reductions over tiles of several axes at once, or that overlap, where such tiles use the registers better."""
    for number in range(len(stages_of(sch))):
        for _ in range(_JOINS):
            stage = stages_of(sch)[number]
            tile = _wanted(stage, stages_of(sch)[:number], machine)
            joined = _joined(sch, stage, tile, machine) if tile else None
            if tile is None or joined is None:
                break
            sch = joined
            if not _moves_vectors(stage, tile):  # the distance of its elements is not known any more
                break
    return sch


def _moves_vectors(stage: Stage, tile: JoinedTile) -> bool:
    """It is the axis in vectors that is cut, or one of blocks of such."""
    weights = stage.vector_load
    axes = stage.spatial[tile.first : tile.last]
    return tile.last == len(stage.spatial) or (weights is not None and any(weights.uses(axis.var) for axis in axes))


def _wanted(stage: Stage, before: Sequence[Stage], machine: CpuMachine) -> JoinedTile | None:
    tile = joined_tile(stage, machine) if stage.simple and stage.is_plain and stage.is_reduction else None
    if tile is None or machine.is_exact or tile.last - tile.first < 2:
        return tile
    plain, joined = register_tile(stage, machine), any_tile_cycles(stage, machine)
    cycles = tile_cycles(stage, machine)
    if plain is None or cycles is None or joined is None:
        return tile
    return None if cycles * (1 - _share_of_padding(stage, before, plain)) < joined else tile


def _share_of_padding(stage: Stage, before: Sequence[Stage], tile: RegisterTile) -> float:
    """The share of the steps of such tiles that read the padding beside an image alone, and are left out after
    (:mod:`.skipped_padding`). Tiles over several rows have none: the window of one that is dilated by 12 reads some of
    a row of 33 at any place."""
    found = 0.0
    for pad, load in itertools.product(before, stage.loads):
        if not pad.conditions or not pad.write.buffer.same_as(load.buffer):
            continue
        for at, index in zip(pad.axes, load.indices, strict=False):
            row = [n for n, axis in enumerate(stage.spatial) if tile.sizes[n] > 1 and depends_on(index, axis.var)]
            taps = [axis for axis in stage.reduced if depends_on(index, axis.var)]
            if len(row) != 1 or len(taps) != 1 or None in (stage.spatial[row[0]].extent, taps[0].extent):
                continue
            found = max(found, _outside(stage.spatial[row[0]], tile.sizes[row[0]], taps[0], index, _inside(pad, at)))
    return found


def _inside(pad: Stage, at: StageAxis) -> tuple[int, int]:
    """The places along an axis of a pad from the first that is no padding to the end of these."""
    first, end = 0, at.extent or 0
    for condition in (own for choice in pad.conditions for own in conjuncts(choice)):
        change = change_of(condition, at.var)
        if change is not None and change.number is not None:
            first, end = (first, min(end, change.number)) if change.before else (max(first, change.number), end)
    return first, end


def _outside(axis: StageAxis, size: int, tap: StageAxis, index: Any, inside: tuple[int, int]) -> float:
    """Of tiles of ``size`` elements and steps of a window, the share that reads nothing ``inside``."""
    linear = tvm.sym.detect_linear_equation(index, [axis.var, tap.var])
    known = [as_int(factor) for factor in linear]
    if len(known) != 3 or None in known:
        return 0.0
    move, step, start = (factor or 0 for factor in known)
    steps = list(itertools.product(range(0, axis.extent or 1, size), range(tap.extent or 1)))
    lowest = [start + first * move + number * step for first, number in steps]
    return sum(low >= inside[1] or low + (size - 1) * move < inside[0] for low in lowest) / len(steps)


def _joined(sch: Any, stage: Stage, tile: JoinedTile, machine: CpuMachine) -> Any:
    joined = _with_joined_axes(sch, stage, tile)
    if joined is None or not _has_tile_like(joined, stage, machine):
        return None
    even = evenly_shared(stage, tile, machine)
    if even == tile or _is_in_pieces(joined, stage.name, machine):
        return joined
    return _with_joined_axes(sch, stage, even)


def _with_joined_axes(sch: Any, stage: Stage, tile: JoinedTile) -> Any:
    def joined() -> Any:
        trial, own = sch, stage
        epilogue = epilogue_of(sch, stage)
        if epilogue is None:
            trial = sch.copy()
            epilogue = stage_of(trial, cached_write(trial, stage.block, "global"))
            own = stage_of(trial, stage.block)
        if not is_in_place(own, epilogue) or (_overlaps(own, tile) and lookups.get_consumers(trial, epilogue.block)):
            return None  # what is written twice, TVM takes for no stage that others may read
        return join_axes(trial, own, epilogue, tile)

    return unless_refused(joined)


def _overlaps(stage: Stage, tile: JoinedTile) -> bool:
    """The last tile starts in the one before."""
    return math.prod(axis.extent or 1 for axis in stage.spatial[tile.first : tile.last]) != tile.size * tile.count


def _has_tile_like(sch: Any, stage: Stage, machine: CpuMachine) -> bool:
    """The reduction is still one for register tiles: cut axes may read operands in a way that is none for vectors."""
    return tile_cycles(stage, machine) is None or (
        tile_cycles(stage_of(sch, sch.get_sblock(stage.name)), machine) is not None
    )


def _is_in_pieces(sch: Any, name: str, machine: CpuMachine) -> bool:
    """A reduction is done in pieces, for which cores take panels."""
    stage = stage_of(sch, sch.get_sblock(name))
    tile = register_tile(stage, machine)
    return tile is not None and reduction_pieces(stage, tile, machine) > 1
