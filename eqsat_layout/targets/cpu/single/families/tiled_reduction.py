"""Schedules of single stages, one function per family (targets room).

In: a ``Schedule`` and the facts of a stage. Out: the schedule changed in place. Each may raise where TVM refuses; the
caller works on a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat_layout.targets.cpu.machine import Machine
from eqsat_layout.targets.cpu.model.core_sharing import cut_into, pieces_of
from eqsat_layout.targets.cpu.model.register_tiles import Tile, lane_tile, reduction_pieces, register_tile
from eqsat_layout.targets.cpu.single.tile_loops import (
    SIDE_BY_SIDE,
    axis_loops,
    extent_of,
    outer_order,
    panel_axes,
    reduce_in_tile,
    reduce_lanes,
    reduce_side_by_side,
    split_tiles,
    tile_reduction,
)
from eqsat_layout.targets.schedules.stages import Access, Axis, Stage, divisors, stage_of

_LONG_RUN = 256  # elements in a loop that LLVM puts into vectors
_LINE = 64  # bytes that come from memory together
_SMALL = 4096  # iterations below which starting threads costs more than it saves


def schedule_elementwise(sch: Any, stage: Stage, machine: Machine) -> None:
    """Outer loops parallel, the innermost contiguous run vectorised (by LLVM, where vectors don't divide it)."""
    loops = list(sch.get_loops(stage.block))
    run = _contiguous_run(stage)
    extents = [a.extent or 1 for a in stage.axes[len(stage.axes) - run :]]
    if run and stage.branches_on(stage.axes[-1].var):
        if _decompose_pad(sch, stage, machine):
            return
        extents[-1] = math.gcd(extents[-1], stage.branch_block(stage.axes[-1].var))  # a concat: vectors lie in one part
    width = machine.lanes(stage.write.element_bytes)
    lanes = _lanes_of_run(extents, width) if run else 1
    if lanes > 1 and (lanes >= width or run == 1):
        fused = sch.fuse(*loops[-run:]) if run > 1 else loops[-1]
        outer, inner = sch.split(fused, [None, lanes])
        sch.vectorize(inner)
        loops = [*loops[:-run], outer, inner]
    elif (across := _axis_across(stage)) is not None:
        loops = _in_lines(sch, loops, across, _LINE // stage.write.element_bytes)
    elif run > 1:
        taken = next((k for k in range(1, run) if math.prod(extents[-k:]) >= _LONG_RUN), run)
        loops = [*loops[:-taken], sch.fuse(*loops[-taken:]) if taken > 1 else loops[-1]]
    if len(loops) == 1 and stage.domain >= _SMALL:
        loops = list(sch.split(loops[0], [4 * machine.cores, None]))
    in_parallel(sch, loops[:-1], machine, stage.domain)


def _axis_across(stage: Stage) -> int | None:
    """The axis along which a load lies in memory, if that is not the last one, of which there is more than a line."""
    last = stage.axes[-1]
    if stage.write.stride(last.var) != 1 or stage.conditions or (last.extent or 0) * stage.write.element_bytes <= _LINE:
        return None
    crossed = [load for load in stage.loads if load.stride(last.var) not in (0, 1)]
    found = (n for load in crossed for n, axis in enumerate(stage.axes[:-1]) if load.stride(axis.var) == 1)
    return next(found, None)


def _in_lines(sch: Any, loops: Sequence[Any], across: int, count: int) -> list[Any]:
    """``count`` elements of the last axis at a time for all of the axis ``across``: lines of memory are used whole."""
    *outer, last = loops
    outer.append(outer.pop(across))
    tile, inner = sch.split(last, [None, count])
    outer.insert(-1, tile)
    sch.reorder(*outer, inner)
    return [*outer, inner]


def _lanes_of_run(extents: Sequence[int], width: int) -> int:
    """Elements of a vector over axes that are one run.

    The innermost axis and the vector divide one another or have no common factor: else TVM may not see that a vector
    is one piece of memory (32 elements along 64 x 56 x 56).
    """
    lanes = vector_lanes(math.prod(extents), width)
    common = math.gcd(lanes, extents[-1])
    return lanes if common in (1, lanes) else vector_lanes(common, width)


def schedule_tile(sch: Any, stage: Stage, epilogue: Stage | None, machine: Machine) -> None:
    """A reduction with a vector axis: accumulators in registers, the epilogue on them while they are hot."""
    tile = register_tile(stage, machine)
    if tile is None:
        raise ValueError("no vector axis")
    if epilogue is None:
        out = sch.cache_write(stage.block, 0, "local")
    else:
        sch.set_scope(stage.block, 0, "local")
        out = epilogue.block
    outer, inner, lane = split_tiles(sch, sch.get_loops(out), tile, stage)
    sch.vectorize(lane)
    if epilogue is None or not epilogue.is_costly:  # all at once, the constants of exp would not fit the registers
        for loop in inner:
            sch.unroll(loop)
    at = _parallel_pieces(sch, outer, machine, stage)
    sch.compute_at(stage.block, at, preserve_unit_loops=True)
    reduce_in_tile(sch, stage, tile)


def schedule_pieces(sch: Any, stage: Stage, epilogue: Stage | None, machine: Machine) -> None:
    """A reduction whose panels of operands overflow the second cache, piece after piece for all tiles of a panel."""
    tile = register_tile(stage, machine)
    if tile is None:
        raise ValueError("no vector axis")
    pieces = reduction_pieces(stage, tile, machine)
    shared = panel_axes(stage)
    if pieces < 2 or shared == len(stage.spatial):
        raise ValueError("one piece is as good")
    _, reduced = axis_loops(sch, stage)
    piece, _ = sch.split(reduced[0], [pieces, None])
    part = sch.rfactor(piece, 0)
    sch.set_scope(part, 0, "local")
    *spatial, piece = sch.get_loops(stage.block)
    outer, inner, lane = split_tiles(sch, spatial, tile, stage)
    if math.prod(extent_of(sch, loop) for loop in outer[:shared]) < machine.cores:
        raise ValueError("too few panels")
    at = _parallel_tiles(sch, outer[:shared], machine, stage.domain)
    sch.reorder(piece, *outer[shared:], *inner, lane)
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.compute_at(part, outer[-1], preserve_unit_loops=True)
    reduce_in_tile(sch, stage_of(sch, part), Tile(tile.vector + 1, tile.lanes, (1, *tile.sizes)))
    sch.decompose_reduction(stage.block, piece)
    if epilogue is not None:
        sch.reverse_compute_at(epilogue.block, at, preserve_unit_loops=True)
        in_vectors(sch, sch.get_loops(epilogue.block)[-1], machine.lanes(stage.write.element_bytes))


def schedule_tile_relaid(sch: Any, stage: Stage, epilogue: Stage, machine: Machine) -> None:
    """Like :func:`schedule_tile`, for an epilogue that reads the tile in another layout than it was made in.

    TVM takes the hull of what a tile feeds, which may hold elements that are not there yet: refused here.
    """
    tile = register_tile(stage, machine, whole=True)
    if tile is None:
        raise ValueError("no tile that holds all of the vector axis")
    spatial, reduced = axis_loops(sch, stage)
    outer, inner, lane = split_tiles(sch, spatial, tile, stage)
    at = _parallel_pieces(sch, outer, machine, stage)
    sch.reverse_compute_at(epilogue.block, at, preserve_unit_loops=True)
    sch.set_scope(stage.block, 0, "local")
    own = sch.get_loops(epilogue.block)[-len(epilogue.axes) :]
    held = tile.lanes * math.prod(tile.sizes)
    if math.prod(extent_of(sch, loop) for loop in own) != held:
        raise ValueError("the tile is not a block of the epilogue's result")
    tile_reduction(sch, stage, inner, lane, reduced)
    common = math.gcd(extent_of(sch, own[-1]), stage.spatial[-1].extent or 1)  # vectors that stay inside a block
    outer, lane = sch.split(own[-1], [None, vector_lanes(common, machine.lanes(stage.write.element_bytes))])
    for loop in (*own[:-1], outer):
        sch.unroll(loop)
    sch.vectorize(lane)


def schedule_lanes(sch: Any, stage: Stage, machine: Machine) -> None:
    """A reduction along contiguous memory: a vector of partial results, then across its lanes."""
    tile = lane_tile(stage, machine)
    if tile is None or tile.lanes < 2:
        raise ValueError("no vector axis")
    count = len(stage.spatial)
    _, reduced = axis_loops(sch, stage)
    _, lane = sch.split(reduced[-1], [None, tile.lanes])
    partial = sch.rfactor(lane, count)
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
    at = _parallel_tiles(sch, outer, machine, stage.domain)
    sch.compute_at(partial, at, preserve_unit_loops=True)
    reduce_lanes(sch, partial)


def schedule_rows(sch: Any, stage: Stage, machine: Machine) -> None:
    """A reduction that no vector divides: results side by side, so that none waits for the sum of the one before."""
    left = SIDE_BY_SIDE
    sizes: list[int] = []
    for axis in reversed(stage.spatial):
        sizes.insert(0, max(divisors(axis.extent or 1, left)))
        left //= sizes[0]
    if left == SIDE_BY_SIDE:
        raise ValueError("no results side by side")
    out = sch.cache_write(stage.block, 0, "local")
    pairs = [sch.split(loop, [None, size]) for loop, size in zip(sch.get_loops(out), sizes, strict=True)]
    outer, inner = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    sch.reorder(*outer, *inner)
    for loop in inner:
        sch.unroll(loop)
    at = _parallel_tiles(sch, outer, machine, stage.domain)
    sch.compute_at(stage.block, at, preserve_unit_loops=True)
    reduce_side_by_side(sch, stage.block)


def schedule_several(sch: Any, stage: Stage, machine: Machine) -> None:
    """A reduction to several results, as a sum and one of squares: vectors of partial results, then across these."""
    count = len(stage.spatial)
    loops = sch.get_loops(stage.block)
    if len(stage.stores) < 2 or len(loops) != len(stage.axes) or _leading(stage) != count:
        raise ValueError("no reduction to several results")
    width = machine.lanes(max(store.element_bytes for store in stage.stores))
    choices = [_lanes_of_last(stage.reduced, run, width) for run in range(1, _run_of(stage.reduced, stage.loads) + 1)]
    lanes = max(choices, default=1)
    if lanes < 2:
        raise ValueError("no vector axis")
    run = choices.index(lanes) + 1
    _, lane = sch.split(sch.fuse(*loops[-run:]) if run > 1 else loops[-1], [None, lanes])
    partial = sch.rfactor(lane, count)
    *own, across = sch.get_loops(stage.block)
    in_parallel(sch, own, machine, stage.domain)
    sch.unroll(across)
    sch.compute_at(partial, sch.get_loops(stage.block)[-2], preserve_unit_loops=True)
    for number in range(len(stage.stores)):
        sch.set_scope(partial, number, "local")
    reduce_lanes(sch, partial)


def _lanes_of_last(axes: Sequence[Axis], count: int, width: int) -> int:
    """Lanes of a vector along so many of the last axes."""
    return vector_lanes(math.prod(axis.extent or 1 for axis in axes[-count:]), width)


def schedule_fallback(sch: Any, stage: Stage, machine: Machine) -> None:
    """Outer spatial loops fused and parallel; nothing else."""
    loops = sch.get_loops(stage.block)
    if stage.simple:
        loops = [loop for loop, axis in zip(loops, stage.axes, strict=True) if not axis.reduce][: _leading(stage)]
    else:
        loops = loops[:1]
    if loops:
        in_parallel(sch, loops, machine, stage.domain)


def _leading(stage: Stage) -> int:
    """Number of spatial axes before the first reduction axis."""
    count = 0
    for axis in stage.axes:
        if axis.reduce:
            break
        count += 1
    return count


def in_parallel(sch: Any, loops: Sequence[Any], machine: Machine, work: int) -> None:
    """Fuses leading loops until they make enough tasks, and runs those in parallel."""
    if not loops:
        return
    taken, tasks = 0, 1
    for loop in loops:
        taken += 1
        tasks *= extent_of(sch, loop)
        if tasks >= 8 * machine.cores:
            break
    fused = sch.fuse(*loops[:taken]) if taken > 1 else loops[0]
    if work >= _SMALL and machine.cores > 1:
        sch.parallel(fused)


def in_vectors(sch: Any, loop: Any, width: int) -> list[Any]:
    """The loop in vectors, where any divides it: the loops outside of them, if so."""
    lanes = vector_lanes(extent_of(sch, loop), width)
    if lanes < 2:
        return []
    outer, lane = sch.split(loop, [None, lanes])
    sch.vectorize(lane)
    return [outer]


def vector_lanes(extent: int, width: int) -> int:
    """Elements of a vector that divides ``extent``: whole registers, up to four, or most of one; else 1."""
    whole = [d for d in divisors(extent, 4 * width) if d % width == 0]
    part = [d for d in divisors(extent, width) if 2 * d >= width]
    return max(whole or part or [1])


def _contiguous_run(stage: Stage) -> int:
    """How many of the last axes are one contiguous run in the store and in every load (or broadcast there)."""
    if stage.write.stride(stage.axes[-1].var) != 1:
        return 0
    return _run_of(stage.axes, [stage.write, *stage.loads], joins=not stage.conditions)


def _run_of(axes: Sequence[Axis], accesses: Sequence[Access], *, joins: bool = True) -> int:
    """How many of the last axes are one run, of equal strides, in every access; just one if none ``joins`` another."""
    if axes[-1].extent is None:
        return 0
    run = 1
    while joins and run < len(axes):
        outer, inner = axes[-run - 1], axes[-run]
        strides = [(access.stride(outer.var), access.stride(inner.var)) for access in accesses]
        if outer.extent is None or not all(_joins(*pair, inner.extent) for pair in strides):
            break
        run += 1
    return run


def _joins(outer: int | None, inner: int | None, extent: int | None) -> bool:
    return outer is not None and inner is not None and extent is not None and outer == inner * extent


def _decompose_pad(sch: Any, stage: Stage, machine: Machine) -> bool:
    """A pad along the vector axis as a fill and a copy, both vectorised; False if the stage is no such pad."""
    if len(stage.loads) != 1 or len(stage.axes) < 2:
        return False
    loops = sch.get_loops(stage.block)
    if not sch.can_decompose_padding(stage.block, loops[0]):
        return False
    fill = sch.decompose_padding(stage.block, loops[0])
    for block in (fill, stage.block):
        *outer, last = sch.get_loops(block)
        outer += in_vectors(sch, last, machine.lanes(stage_of(sch, block).write.element_bytes))
        in_parallel(sch, outer, machine, stage.domain)
    return True


def _parallel_pieces(sch: Any, outer: Sequence[Any], machine: Machine, stage: Stage) -> Any:
    """Parallel over pieces of an axis, where cores are to share it, else over leading tiles (in their order)."""
    order, pieces = outer_order(stage), pieces_of(stage, machine)
    for place in map(order.index, pieces.axes):
        if math.prod(extent_of(sch, loop) for loop in outer[:place]) == 1:
            break  # they take pieces anyway
        count = cut_into(extent_of(sch, outer[place]), pieces.count, machine)
        if count < 2:
            continue
        piece, rest = sch.split(outer[place], [count, None])
        outer = [piece, *outer[:place], rest, *outer[place + 1 :]]
        sch.reorder(*outer)
        wanted = count if count % machine.cores == 0 else None
        return _parallel_tiles(sch, outer, machine, stage.domain, wanted)
    return _parallel_tiles(sch, outer, machine, stage.domain)


def _parallel_tiles(sch: Any, outer: Sequence[Any], machine: Machine, work: int, wanted: int | None = None) -> Any:
    """Parallel over leading tiles, ``wanted`` or more; at least one loop stays inside. The innermost one comes back."""
    leading = list(outer[:-1])
    wanted = wanted or 8 * machine.cores
    tasks = math.prod(extent_of(sch, loop) for loop in leading)
    if tasks < wanted:
        leading = list(outer)
    taken, tasks = 0, 1
    for loop in leading:
        taken += 1
        tasks *= extent_of(sch, loop)
        if tasks >= wanted:
            break
    fused = sch.fuse(*leading[:taken]) if taken > 1 else leading[0]
    if work >= _SMALL and machine.cores > 1:
        sch.parallel(fused)
    return fused if taken == len(outer) else outer[-1]
