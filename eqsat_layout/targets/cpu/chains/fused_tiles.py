"""Several stages as one kernel, tile by tile.

In: a schedule over several stages and the tile of the last one. Out: the schedule changed in place; refused where TVM
can't do it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.chains.pieces_of_rows import add_up_pieces, sums_of_pieces
from eqsat_layout.targets.cpu.chains.row_blocks import ROWS, RowBlock, row_blocks
from eqsat_layout.targets.cpu.cut_loops import phases_are_cut
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import reduces_rows
from eqsat_layout.targets.cpu.model.register_tiles import register_tile
from eqsat_layout.targets.cpu.model.row_lanes import row_lanes
from eqsat_layout.targets.cpu.single.loops import in_vectors
from eqsat_layout.targets.cpu.single.pads import breaks_vectors, fill_and_copy
from eqsat_layout.targets.cpu.single.tile_loops import reduce_in_tile, split_tiles
from eqsat_layout.targets.cpu.single.tile_order import in_order_of_results, loop_iterations
from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_in_place
from eqsat_layout.targets.schedules.stages import Stage, cached_write, stage_of, stages_of
from eqsat_layout.tir.structural import is_one_of


@dataclass(frozen=True)
class _Pass:
    """A reduction in registers and the block ``out`` that takes what it makes out of them; a reduction of ``rows``, in
    several blocks; or an elementwise stage alone.

    ``pieces``: the block that adds up each piece of a long reduction by itself.
    """

    out: Any
    reduction: Stage | None = None
    rows: Sequence[RowBlock] = ()
    pieces: Any = None

    @property
    def blocks(self) -> list[Any]:
        """In the order in which they run."""
        if self.rows:
            return [row.block for row in self.rows]
        if self.reduction is None:
            return [self.out]
        return [*([] if self.pieces is None else [self.pieces]), self.reduction.block, self.out]


def schedule_fused_tiles(sch: Any, tile: Sequence[int], machine: CpuMachine) -> None:
    """Tiles of the last stage's result in parallel; all that a tile needs is made just before it."""
    passes = _passes(sch, tile, machine)
    last = passes[-1].out
    outer, inner = _split(sch, last, tile)
    at = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    if machine.cores > 1:
        sch.parallel(at)
    for block in reversed([block for one in passes for block in one.blocks if block is not last]):
        sch.compute_at(block, at, preserve_unit_loops=True)
    for one in passes:
        loops = inner if one.out is last else None
        if one.rows:
            for row in one.rows:
                row.finish(sch, row.block)
        elif one.reduction is None:
            _elementwise(sch, one.out, loops, machine)
        elif one.pieces is not None:
            add_up_pieces(sch, one.pieces, one.reduction, machine)
            _elementwise(sch, one.out, loops, machine)
        else:
            _reduction(sch, one.reduction, one.out, loops, machine)


def _passes(sch: Any, tile: Sequence[int], machine: CpuMachine) -> list[_Pass]:
    found: list[_Pass] = []
    taken: list[Any] = []
    for stage in stages_of(sch):
        if any(lookups.get(sch, stage.block).same_as(lookups.get(sch, block)) for block in taken):
            continue
        if not stage.is_reduction:
            found.append(_Pass(stage.block))
            continue
        if reduces_rows(stage):
            found.append(_Pass(stage.block, rows=_rows(sch, stage, machine)))
            continue
        along_rows = any(one.rows for one in found) and _reads_rows(sch, stage)
        pieces = sums_of_pieces(sch, stage, tile, machine) if along_rows else None
        epilogue = epilogue_of(sch, stage)
        if epilogue is not None and is_in_place(stage, epilogue):
            taken.append(epilogue.block)
            out = epilogue.block
        else:
            out = cached_write(sch, stage.block, "global")
        sch.set_scope(stage.block, 0, "local")
        if pieces is not None:
            sch.set_scope(pieces, 0, "local")
        found.append(_Pass(out, stage_of(sch, stage.block), pieces=pieces))
    return found


def _reads_rows(sch: Any, stage: Stage) -> bool:
    """A product along rows that a stage before it makes."""
    along = stage.reduced[-1].var
    made = _made_before(sch, stage)
    return any(is_one_of(load.buffer, made) and load.stride(along) == 1 for load in stage.loads)


def _made_before(sch: Any, stage: Stage) -> list[Any]:
    """What stages before it make of its operands."""
    return [stage_of(sch, block).write.buffer for block in lookups.get_producers(sch, stage.block)]


def _rows(sch: Any, stage: Stage, machine: CpuMachine) -> list[RowBlock]:
    """What is made of the rows of a tile is little, and kept apart from memory."""
    lanes = row_lanes(stage, machine)
    if not lanes:
        raise Refused("no vectors along rows")
    blocks = row_blocks(sch, stage, lanes, ROWS)
    for row in blocks:
        sch.set_scope(row.block, 0, "local")
    return blocks


def _split(sch: Any, block: Any, tile: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The loops over tiles and, for every axis, the loop inside one."""
    outer: list[Any] = []
    inner: list[Any] = []
    for loop, size in zip(lookups.get_loops(sch, block), tile, strict=True):
        head, small = sch.split(loop, [None, size])
        outer.append(head)
        inner.append(small)
    sch.reorder(*outer, *inner)
    return outer, inner


def _reduction(sch: Any, stage: Stage, out: Any, loops: Sequence[Any] | None, machine: CpuMachine) -> None:
    """Register tiles inside a tile of the last stage. ``loops``: those of its tile where this is the last stage itself:
    only what leaves the caches is made in the order of memory."""
    is_last, count = loops is not None, len(stage.spatial)
    loops = loops or lookups.get_loops(sch, out)[-count:]
    made = _made_before(sch, stage)
    given = [load.buffer for load in stage.loads if not is_one_of(load.buffer, made)]
    local = stage.within([loop_iterations(sch, loop) for loop in loops], given)
    tile = register_tile(local, machine)
    if tile is None:
        raise Refused("no vector axis")
    outer, inner, lane = split_tiles(sch, loops, tile, local)
    sch.vectorize(lane)
    if not stage_of(sch, out).is_costly:
        for loop in inner:
            sch.unroll(loop)
    if is_last:
        outer = in_order_of_results(sch, outer, tile, local, machine)
    sch.compute_at(stage.block, outer[-1], preserve_unit_loops=True)
    reduce_in_tile(sch, local, tile, machine)


def _elementwise(sch: Any, block: Any, loops: Sequence[Any] | None, machine: CpuMachine) -> None:
    stage = stage_of(sch, block)
    width, every = machine.lanes(stage.write.element_bytes), lookups.get_loops(sch, block)
    loops = loops or every[-len(stage.axes) :]
    around = len(every) - len(loops)
    if phases_are_cut(stage):
        sch.unroll(loops[-2])
        return
    if stage.conditions and breaks_vectors(stage, width) and fill_and_copy(sch, stage, around, machine):
        return
    loops = _following_load(sch, stage, loops, machine)
    if not stage.branches_on(stage.axes[-1].var):
        in_vectors(sch, loops[-1], width)


def _following_load(sch: Any, stage: Stage, loops: Sequence[Any], machine: CpuMachine) -> Sequence[Any]:
    """The loops of a copy, put in the order in which what it reads lies in memory: the hardware fetches long pieces
    ahead, while what it stores stays in the cache. The last one stays, even beside one that reads the same again.
    Those come first that go on by far in what is stored, as long as the others store to more pages than the TLB has
    room for beside what is read."""
    if len(loops) != len(stage.axes) or not stage.is_copy:
        return loops
    read, stored = ([access.stride(axis.var) for axis in stage.axes] for access in (stage.loads[0], stage.write))
    if None in read or read[-1] != 1:
        return loops
    *outer, last = range(len(loops))
    order = sorted(outer, key=lambda place: -abs(read[place] or 0))
    in_page = machine.page_bytes // stage.write.element_bytes
    far = sorted((place for place in outer if (stored[place] or 0) >= in_page), key=lambda place: stored[place] or 0)
    while math.prod(loop_iterations(sch, loops[place]) for place in far) > machine.tlb_pages // 2:
        order.remove(far[-1])
        order.insert(0, far.pop())
    loops = [*(loops[place] for place in order), loops[last]]
    sch.reorder(*loops)
    return loops
