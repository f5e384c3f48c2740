"""Products along long rows, which stages before them make: added up piece by piece of the rows.

In: a schedule of tiles of rows, and a reduction along these rows (the second product of attention). Out: the schedule
changed in place. What a piece reads of the other operand stays in L1 for all rows of a tile; else each register tile
would read all of it again, from L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import register_tile
from eqsat_layout.targets.cpu.single.loops import in_vectors
from eqsat_layout.targets.cpu.single.tile_loops import add_up_partial_results, axis_loops, partial_results, split_tiles
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.stages import Stage, divisors, stage_of

_FEWEST_ROWS = 8  # of a tile: fewer are one register tile
_L1_SHARE = 0.5  # of L1 is for what a piece reads of the other operand
_SHORTEST = 32  # steps of a piece: of fewer, adding it up takes too much of the time


def sums_of_pieces(sch: Any, stage: Stage, tile: Sequence[int], machine: CpuMachine) -> Any:
    """The block that adds up each piece by itself, before that of the stage; ``None`` where pieces gain nothing.

    ``tile``: elements of the result at a time, of each of its axes.
    """
    *rows, columns = tile
    reduced = [axis for axis in stage.reduced if axis.extent != 1]
    held = stage.vector_load
    if machine.is_exact or math.prod(rows) < _FEWEST_ROWS or held is None or not 1 <= len(reduced) <= 2:
        return None
    step = columns * held.element_bytes
    if stage.steps * step <= machine.l1_working_set:
        return None
    loop = lookups.get_loops(sch, stage.block)[stage.axes.index(reduced[0])]
    if len(reduced) == 1:
        size = max(divisors(reduced[0].extent or 1, int(_L1_SHARE * machine.l1_working_set / step)), default=1)
        if size < _SHORTEST:
            return None
        loop, _ = sch.split(loop, [None, size])
    return partial_results(sch, loop, stage, 0)


def add_up_pieces(sch: Any, pieces: Any, stage: Stage, machine: CpuMachine) -> None:
    """The loops of a tile: pieces outside, register tiles of each inside.

    What nothing but the product reads is made piece by piece, too.
    """
    makers = [block for block in lookups.get_producers(sch, pieces) if _is_only_for(sch, block, pieces)]
    spatial, reduced = axis_loops(sch, stage)
    (piece,) = (loop for loop in reduced if loop_iterations(sch, loop) > 1)
    extents = [loop_iterations(sch, loop) for loop in spatial]
    tile = register_tile(stage_of(sch, pieces).within([1, *extents]), machine)
    if tile is None or tile.vector == 0:
        raise Refused("no vector axis")
    tile = replace(tile, vector=tile.vector - 1, sizes=tile.sizes[1:])  # of results
    add_up_partial_results(sch, stage, pieces, piece, split_tiles(sch, spatial, tile, stage), tile, machine)
    for block in makers:
        sch.compute_at(block, piece, preserve_unit_loops=True)
        in_vectors(sch, lookups.get_loops(sch, block)[-1], machine.lanes(stage.write.element_bytes))


def _is_only_for(sch: Any, block: Any, reader: Any) -> bool:
    """An elementwise block that no other one reads."""
    stage, readers = stage_of(sch, block), lookups.get_consumers(sch, block)
    return not stage.is_reduction and len(readers) == 1 and bool(sch.get(readers[0]).same_as(sch.get(reader)))
