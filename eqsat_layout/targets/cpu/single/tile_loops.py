"""The loops of register tiles.

In: a schedule, a reduction and its tile. Out: the schedule changed in place, so that the accumulators of a tile are in
registers while its reduction runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.guarded_divisions import is_integer
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.tiles import RegisterTile
from eqsat_layout.targets.cpu.single.tile_order import loop_iterations, outer_order
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis
from eqsat_layout.targets.schedules.stages import ROOT, Stage, divisors, stage_of
from eqsat_layout.tir.structural import nodes_of

_UNROLLED = 8  # steps of the innermost reduction axes that are written out: of 12, LLVM loads so early that it spills
_TWICE = 2  # iterations of a loop that LLVM looks through: what both need is loaded so early that it spills
_BODY = 192  # multiply-adds beyond which fewer steps are: the loop has to stay in the core's cache of decoded code
_WINDOW = 25  # largest window that is written out whole, 5x5 (depthwise, pooling)


def split_tiles(sch: Any, loops: Sequence[Any], tile: RegisterTile, stage: Stage) -> tuple[list[Any], list[Any], Any]:
    """The spatial ``loops`` as tiles, in order: (loops over tiles, loops inside one, its lanes)."""
    outer: list[Any] = []
    inner: list[Any] = []
    lane = None
    for position, loop in enumerate(loops):
        if position == tile.vector:
            head, middle, lane = sch.split(loop, [None, tile.sizes[position], tile.lanes])
            inner.append(middle)
        else:
            head, small = sch.split(loop, [None, tile.sizes[position]])
            inner.append(small)
        outer.append(head)
    outer = [outer[position] for position in outer_order(stage)]
    sch.reorder(*outer, *inner, lane)
    return outer, inner, lane


def reduce_in_tile(sch: Any, stage: Stage, tile: RegisterTile, machine: CpuMachine) -> None:
    """The reduction of a tile, where the loops of the stage run over one tile only."""
    spatial, reduced = axis_loops(sch, stage)
    spatial[tile.vector], lane = sch.split(spatial[tile.vector], [None, tile.lanes])
    tile_reduction(sch, stage, tile, (_held_last(stage, tile, spatial), lane, reduced), machine)


def tile_reduction(
    sch: Any, stage: Stage, tile: RegisterTile, loops: tuple[Sequence[Any], Any, Sequence[Any]], machine: CpuMachine
) -> None:
    """Inside a tile: reduction loops outside, the tile written out, lanes innermost, initialisation apart.

    ``loops``: over the vectors of a tile, over the lanes of one, and those of the reduction.
    """
    inner, lane, reduced = loops
    reduced = _streamed_order(stage, tile, reduced, machine)
    written = _written_out(sch, stage, reduced, math.prod(loop_iterations(sch, loop) for loop in inner))
    sch.reorder(*reduced, *written, *inner, lane)
    for loop in (*written, *inner):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.decompose_reduction(stage.block, (*reduced, *written)[0])


def axis_loops(sch: Any, stage: Stage) -> tuple[list[Any], list[Any]]:
    """The innermost loops, one per axis of ``stage``, as (spatial, reduced)."""
    loops = lookups.get_loops(sch, stage.block)
    if len(loops) < len(stage.axes):  # rfactor leaves axes of one element without loops
        raise Refused("axes without loops of their own")
    own = list(zip(loops[-len(stage.axes) :], stage.axes, strict=True))
    return [loop for loop, axis in own if not axis.reduce], [loop for loop, axis in own if axis.reduce]


def across_lanes(sch: Any, stage: Stage, lanes: int) -> list[Any]:
    """A reduction as one of vectors of ``lanes`` partial results, a power of two, and of halves of these: their blocks.

    Two results are left for the block of the stage itself; all of them, if one vector is the whole of an integer sum of
    products: of unsigned by signed bytes LLVM 22 makes VPDPBUSD, and of its words only the first one where halves of
    the vector were to be added.
    """
    blocks: list[Any] = []
    if stage.steps == lanes and _is_integer_product(lookups.get(sch, stage.block)):
        return blocks
    while lanes > 1:
        _, lane = sch.split(lookups.get_loops(sch, stage.block)[-1], [None, lanes])
        blocks.append(partial_results(sch, lane, stage))
        lanes //= 2
    return blocks


def _is_integer_product(block: Any) -> bool:
    """Numbers whose sizes LLVM finds out: they may be bytes however they are written."""
    return any(map(is_integer, nodes_of(block.body, tirx.Mul)))


def partial_results(sch: Any, loop: Any, stage: Stage, axis: int | None = None) -> Any:
    """The block that reduces each iteration of ``loop`` by itself; ``axis`` of its buffer numbers them, else the last.

    TVM's ``rfactor`` ends in internal errors in a function with a block under no loop, which gets one here, and for
    booleans, among which it finds no neutral elements: refused. So is a reduction that gives the number of the element
    that comes first among equal ones.
    """
    if any(str(store.buffer.ty.dtype) == "bool" for store in stage.stores):
        raise Refused("no partial results of booleans")
    if len(stage.stores) > 1 and _has_ties(lookups.get(sch, stage.block)):
        raise Refused("which of equal elements is taken depends on the order")
    for block in lookups.get_child_blocks(sch, lookups.get_sblock(sch, ROOT)):
        if not lookups.get_loops(sch, block):
            sch.add_unit_loop(block)
    return sch.rfactor(loop, len(stage.spatial) if axis is None else axis)


def add_up_partial_results(
    sch: Any,
    stage: Stage,
    part: Any,
    piece: Any,
    tiles: tuple[Sequence[Any], Sequence[Any], Any],
    tile: RegisterTile,
    machine: CpuMachine,
) -> None:
    """The loop ``piece`` outside of ``tiles`` (as :func:`split_tiles` gives them) of the stage's results: each register
    tile of the block ``part``, whose first axis numbers the pieces, is added to them when it is done."""
    outer, inner, lane = tiles
    sch.reorder(piece, *outer, *inner, lane)
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.compute_at(part, outer[-1], preserve_unit_loops=True)
    reduce_in_tile(sch, stage_of(sch, part), RegisterTile(tile.vector + 1, tile.lanes, (1, *tile.sizes)), machine)
    sch.decompose_reduction(stage.block, piece)


def _has_ties(block: Any) -> bool:
    """It keeps a result or takes another one by a condition that does not look at both: TOPI's argmax looks."""
    results = {region.source for region in block.writes}

    def held(node: Any) -> set[Any]:
        return {load.source for load in nodes_of(node, tvm.ir.TensorLoad)} & results

    choices = nodes_of(block.body, tirx.Select)
    return any(held(choice) - held(choice.condition) for choice in choices)


def reduce_lanes(sch: Any, block: Any, most: int | None = None) -> None:
    """Inside a tile: the steps of a reduction outside, its partial results written out, their lanes in vectors.

    ``most``: rows that are written out, if not all.
    """
    stage = stage_of(sch, block)
    lane = stage.write.indices[-1]  # rfactor puts it last in the buffer, and first among the axes
    spatial, steps = axis_loops(sch, stage)
    is_lane = [axis.var.same_as(lane) for axis in stage.spatial]
    lanes = spatial.pop(is_lane.index(True))
    groups, rows = _groups_of_rows(sch, spatial, most)
    sch.reorder(*groups, *steps, *rows, lanes)
    sch.vectorize(lanes)
    sch.decompose_reduction(block, steps[0])


def reduce_side_by_side(sch: Any, block: Any, most: int | None = None) -> None:
    """Inside a tile: the steps of a reduction outside, its results written out, ``most`` of them if not all."""
    spatial, steps = axis_loops(sch, stage_of(sch, block))
    groups, rows = _groups_of_rows(sch, spatial, most)
    sch.reorder(*groups, *steps, *rows)
    sch.decompose_reduction(block, steps[0])


def _groups_of_rows(sch: Any, loops: Sequence[Any], most: int | None) -> tuple[Sequence[Any], Sequence[Any]]:
    """The loops over groups of rows, outside of all others, and those over the rows of one, which are written out."""
    groups, written = [], list(loops)
    if most is not None and loops:
        longest = max(range(len(loops)), key=lambda number: loop_iterations(sch, loops[number]))
        outer, few = sch.split(loops[longest], [None, max(divisors(loop_iterations(sch, loops[longest]), most))])
        groups, written = [*loops[:longest], outer, *loops[longest + 1 :]], [few]
    for loop in written:
        sch.unroll(loop)
    return groups, written


def _written_out(sch: Any, stage: Stage, reduced: list[Any], accumulators: int) -> list[Any]:
    """The last steps of a reduction that are written out, as loops; the others are left in ``reduced``."""
    steps = math.prod(a.extent or 64 for a in stage.reduced)
    is_window = steps <= _WINDOW and all(load.stride(stage.spatial[-1].var) for load in stage.loads)
    # of a product of matrices a loop must be left: in straight code LLVM moves loads ahead until registers spill
    is_whole = stage.matrix is not None or is_window
    left = max(steps, _WINDOW) if is_whole else max(1, min(_UNROLLED, _BODY // accumulators, steps // 2))
    written: list[Any] = []
    if stage.has_open_window:  # of few steps along each axis
        return written
    while reduced:
        extent = loop_iterations(sch, reduced[-1])
        part = max(steps for steps in divisors(extent, left) if extent != _TWICE * steps or steps == 1)
        if part < extent:
            if part > 1:
                reduced[-1], tail = sch.split(reduced[-1], [None, part])
                written.insert(0, tail)
            break
        written.insert(0, reduced.pop())
        left //= part
    return written


def _held_last(stage: Stage, tile: RegisterTile, loops: Sequence[Any]) -> list[Any]:
    """The ``loops`` inside a tile, in the order that keeps the fewest operands: those along which these move are last.

    LLVM issues the products as they are written. Whatever it meets again it keeps, and if it must, on the stack.
    """
    held = min(stage.loads, key=lambda load: _registers_of(load, stage, tile))
    moves = [held.stride(axis.var) != 0 for axis in stage.spatial]
    order = sorted(range(len(loops)), key=lambda position: (moves[position], position))
    return [loops[position] for position in order]


def _registers_of(load: StageAccess, stage: Stage, tile: RegisterTile) -> int:
    """Different vectors, or elements that are broadcast, of a load in one step of a tile."""
    sizes = zip(stage.spatial, tile.sizes, strict=True)
    return math.prod(size for axis, size in sizes if load.stride(axis.var) != 0)


def refuse_partial_results(machine: CpuMachine) -> None:
    """Where reductions are done in order: the greatest of several numbers depends on it where some are NaN."""
    if machine.is_exact:
        raise Refused("the steps of a reduction are to be done in order")


def _streamed_order(stage: Stage, tile: RegisterTile, reduced: Sequence[Any], machine: CpuMachine) -> list[Any]:
    """The reduction loops as the load in vectors lies in memory, if that is known and any order will do.

    But for the last one, where LLVM would keep what neighbouring results share, and an axis is left for which it won't.
    """
    held = None if machine.is_exact else stage.vector_load
    strides = [held.stride(axis.var) for axis in stage.reduced] if held is not None else []
    if not strides or None in strides:
        return list(reduced)
    order = sorted(range(len(reduced)), key=lambda i: -abs(strides[i] or 0))
    kept = [_is_kept(stage, tile, axis, machine) for axis in stage.reduced]
    apart = [i for i in order if stage.reduced[i].extent != 1 and not kept[i]]
    if apart and kept[order[-1]]:
        order.remove(apart[-1])
        order.append(apart[-1])
    return [reduced[i] for i in order]


def _is_kept(stage: Stage, tile: RegisterTile, step: StageAxis, machine: CpuMachine) -> bool:
    """Steps along this axis meet elements again that are broadcast to one vector each, more than registers are left.

    Instructions broadcast such from memory. Where the steps are written out, LLVM takes a register for each, to have it
    in the next step, and when there is none left the stack.
    """
    vectors = math.prod(tile.sizes)
    for load in stage.loads:
        is_alone = load.stride(stage.spatial[-1].var) == 0 and _registers_of(load, stage, tile) == vectors
        moved = load.stride(step.var)
        if not is_alone or not moved or 2 * vectors < machine.registers or not machine.broadcast_operand:
            continue
        own = [axis.var for axis, size in zip(stage.spatial, tile.sizes, strict=True) if size > 1]
        apart = [load.stride(var) for var in own if load.moves_along_both(var, step.var)]
        if any(stride and abs(stride) < abs(moved) * (step.extent or 64) for stride in apart):
            return True
    return False
