"""Register tiles over several axes at once, or tiles that overlap, where these use the registers better.

In: a schedule. Out: one whose reductions have such axes joined, each with an epilogue that runs in place.
"""

from __future__ import annotations

import math
from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import (
    JoinedTile,
    evenly_shared,
    joined_tile,
    reduction_pieces,
    register_tile,
    tile_cycles,
)
from eqsat_layout.targets.cpu.single.join_axes import join_axes
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_in_place
from eqsat_layout.targets.schedules.stages import Stage, stage_of, stages_of

_JOINS = 2  # one of the vector axis, and one of others


def join_tiles(sch: Any, machine: CpuMachine) -> Any:
    """Reductions over tiles of several axes at once, or that overlap, where such tiles use the registers better."""
    for number in range(len(stages_of(sch))):
        for _ in range(_JOINS):
            stage = stages_of(sch)[number]
            tile = _wanted(stage, machine)
            joined = _joined(sch, stage, tile, machine) if tile else None
            if tile is None or joined is None:
                break
            sch = joined
            if tile.last < len(stage.spatial):  # of others than the vector axis, whose distance is not known any more
                break
    return sch


def _wanted(stage: Stage, machine: CpuMachine) -> JoinedTile | None:
    return joined_tile(stage, machine) if stage.simple and stage.is_plain and stage.is_reduction else None


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
            epilogue = stage_of(trial, trial.cache_write(stage.block, 0, "global"))
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
