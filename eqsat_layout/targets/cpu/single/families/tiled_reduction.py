"""Reductions with a vector axis: tiles of accumulators in registers.

In: a schedule, a reduction, and its epilogue if it has one. Out: the schedule changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import reduction_pieces, register_tile
from eqsat_layout.targets.cpu.model.vectors import vector_lanes
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.loops import in_vectors, parallel_pieces, parallel_tiles
from eqsat_layout.targets.cpu.single.tile_loops import (
    add_up_partial_results,
    axis_loops,
    partial_results,
    reduce_in_tile,
    refuse_partial_results,
    split_tiles,
    tile_reduction,
)
from eqsat_layout.targets.cpu.single.tile_order import in_order_of_results, loop_iterations, panel_axes
from eqsat_layout.targets.schedules.epilogues import is_in_place, is_relaid
from eqsat_layout.targets.schedules.stages import Stage, cached_write

_FEW_REGISTERS: Final = 16


def is_one_sum(stage: Stage) -> bool:
    """A reduction to one result, of plain loops."""
    return stage.simple and stage.is_plain and stage.is_reduction


def _has_epilogue_in_place(stage: Stage, epilogue: Stage | None) -> bool:
    return is_one_sum(stage) and epilogue is not None and is_in_place(stage, epilogue)


def _has_other_epilogue(stage: Stage, epilogue: Stage | None) -> bool:
    return is_one_sum(stage) and epilogue is not None and not is_in_place(stage, epilogue)


def _has_no_epilogue(stage: Stage, epilogue: Stage | None) -> bool:
    return is_one_sum(stage) and epilogue is None


def _in_tiles(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Accumulators in registers, the epilogue on them while they are hot."""
    tile = register_tile(stage, machine)
    if tile is None:
        raise Refused("no vector axis")
    if epilogue is None:
        out = cached_write(sch, stage.block, "local")
    else:
        sch.set_scope(stage.block, 0, "local")
        out = epilogue.block
    outer, inner, lane = split_tiles(sch, sch.get_loops(out), tile, stage)
    sch.vectorize(lane)
    for loop in _written_loops(inner, epilogue, machine):
        sch.unroll(loop)
    outer = in_order_of_results(sch, outer, tile, stage, machine)
    at = parallel_pieces(sch, outer, machine, stage)
    sch.compute_at(stage.block, at, preserve_unit_loops=True)
    reduce_in_tile(sch, stage, tile, machine)


def _written_loops(inner: Sequence[Any], epilogue: Stage | None, machine: CpuMachine) -> Sequence[Any]:
    """The loops over a tile's vectors that the epilogue is written out along.

    Of a costly one, whose constants would not fit beside all of a tile, only the vectors of a row where there are many
    registers: written in a loop, a long one leaves LLVM the accumulators in memory, and waits for one chain at a time.
    """
    if epilogue is None or not epilogue.is_costly:
        return inner
    return inner[-1:] if machine.registers > _FEW_REGISTERS else ()


def _in_pieces(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """A reduction whose panels of operands overflow L2, piece after piece for all tiles of a panel."""
    refuse_partial_results(machine)
    tile = register_tile(stage, machine)
    if tile is None:
        raise Refused("no vector axis")
    pieces = reduction_pieces(stage, tile, machine)
    shared = panel_axes(stage)
    if pieces < 2 or shared == len(stage.spatial):
        raise Refused("one piece is as good")
    _, reduced = axis_loops(sch, stage)
    piece, _ = sch.split(reduced[0], [pieces, None])
    part = partial_results(sch, piece, stage, axis=0)
    sch.set_scope(part, 0, "local")
    *spatial, piece = sch.get_loops(stage.block)
    outer, inner, lane = split_tiles(sch, spatial, tile, stage)
    if math.prod(loop_iterations(sch, loop) for loop in outer[:shared]) < machine.cores:
        raise Refused("too few panels")
    at = parallel_tiles(sch, outer[:shared], machine, stage)
    add_up_partial_results(sch, stage, part, piece, (outer[shared:], inner, lane), tile, machine)
    if epilogue is not None:
        sch.reverse_compute_at(epilogue.block, at, preserve_unit_loops=True)
        in_vectors(sch, sch.get_loops(epilogue.block)[-1], machine.lanes(stage.write.element_bytes))


def _in_relaid_tiles(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Like :func:`_in_tiles`, for an epilogue that reads the tile in another layout than it was made in.

    TVM takes the hull of what a tile feeds, which may hold elements that are not there yet: refused here.
    """
    if epilogue is None or not is_relaid(stage, epilogue):
        raise Refused("the epilogue mixes elements of a tile with others")
    tile = register_tile(stage, machine, whole=True)
    if tile is None:
        raise Refused("no tile that holds all of the vector axis")
    spatial, reduced = axis_loops(sch, stage)
    outer, inner, lane = split_tiles(sch, spatial, tile, stage)
    at = parallel_pieces(sch, outer, machine, stage)
    sch.reverse_compute_at(epilogue.block, at, preserve_unit_loops=True)
    sch.set_scope(stage.block, 0, "local")
    own = sch.get_loops(epilogue.block)[-len(epilogue.axes) :]
    held = tile.lanes * math.prod(tile.sizes)
    if math.prod(loop_iterations(sch, loop) for loop in own) != held:
        raise Refused("the tile is not a block of the epilogue's result")
    tile_reduction(sch, stage, tile, (inner, lane, reduced), machine)
    common = math.gcd(loop_iterations(sch, own[-1]), stage.spatial[-1].extent or 1)  # vectors that stay inside a block
    outer, lane = sch.split(own[-1], [None, vector_lanes(common, machine.lanes(stage.write.element_bytes))])
    for loop in (*own[:-1], outer):
        sch.unroll(loop)
    sch.vectorize(lane)


PIECES_AND_EPILOGUE = Family(
    "pieces of the reduction, then the epilogue", _in_pieces, _has_epilogue_in_place, takes_epilogue=True
)
TILES_AND_EPILOGUE = Family("register tiles with the epilogue", _in_tiles, _has_epilogue_in_place, takes_epilogue=True)
TILES_AND_RELAID_EPILOGUE = Family(
    "register tiles with an epilogue of another layout", _in_relaid_tiles, _has_other_epilogue, takes_epilogue=True
)
PIECES = Family("pieces of the reduction", _in_pieces, _has_no_epilogue)
TILES = Family("register tiles", _in_tiles, lambda stage, _: is_one_sum(stage))
