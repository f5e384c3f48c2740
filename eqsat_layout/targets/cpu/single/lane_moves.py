"""Elementwise work whose operands lie otherwise than the result: transposes, resizes, strides.

In: a schedule over one stage with loads that do not move along memory as its store does. Out: a new one that reads
whole vectors and moves their elements to other lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_equal

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.few_vectors import from_few_vectors
from eqsat_layout.targets.cpu.single.interleaved_rows import interleaved_rows
from eqsat_layout.targets.cpu.single.lane_squares import LaneSquare, SquareInMemory
from eqsat_layout.targets.cpu.single.lanes import (
    SIZES,
    LaneBody,
    sizes_along,
)
from eqsat_layout.targets.cpu.single.looked_up_rows import is_looked_up, looked_up_rows
from eqsat_layout.targets.cpu.single.loops import in_parallel
from eqsat_layout.targets.cpu.single.short_rows import short_rows
from eqsat_layout.targets.cpu.single.written_out_rows import written_out_rows
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.targets.schedules.stages import Stage, stages_of
from eqsat_layout.tir.blocks import sequence, store_of, under_loops
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map_outermost, substitute

MOST_SQUARES = 2
"""That registers hold at once."""

_WIDENED = ("bfloat", "float8_", "float6_", "float4_")  # TVM gives variables of these another type than their values


def move_lanes(sch: Any, machine: CpuMachine, *, is_dense: bool = True) -> Any:
    """The schedule; ``None`` where there is more than one stage, or one of another kind.

    ``is_dense``: rows of tensors lie one after another, so that several may be taken as one.

    Either rows are a few narrow elements, each from another plane. Or such loads lie along another axis of the result:
    squares of both axes are transposed in registers, or where functions are worked out of them, in L1. Or they jump
    along their row in a way that is known: elements are picked out of the two vectors that hold them, and what else
    depends on the place in the row is a table. Or several places take turns to give the elements of a row. Or each
    vector is put together of a few others.
    """
    stages = stages_of(sch)
    if len(stages) != 1:
        return None
    (stage,) = stages
    is_whole = stage.simple and stage.is_plain and all(axis.extent is not None for axis in stage.axes)
    if stage.is_reduction or not is_whole:
        return None
    if not any(_is_elsewhere(load, stage) or is_looked_up(load, stage) for load in stage.loads):
        return None
    if any(str(access.buffer.dtype).startswith(_WIDENED) for access in (stage.write, *stage.loads)):
        return None
    written_out = partial(written_out_rows, is_dense=is_dense)
    squares = partial(_in_squares, kind=LaneSquare), partial(_in_squares, kind=SquareInMemory)
    for body_of in (
        short_rows,
        squares[0],
        written_out,
        looked_up_rows,
        interleaved_rows,
        from_few_vectors,
        squares[1],
    ):
        moved = unless_refused(partial(_moved_by, body_of, sch, stage, machine))
        if moved is not None:
            return moved
    return None


def _moved_by(
    body_of: Callable[[Any, Stage, CpuMachine], LaneBody], sch: Any, stage: Stage, machine: CpuMachine
) -> Any:
    return _scheduled(sch, stage, body_of(sch.get(stage.block), stage, machine), machine)


def _is_elsewhere(load: StageAccess, stage: Stage) -> bool:
    """The load moves along the last axis of the result, but not from one element to the next through a vector."""
    last = stage.axes[-1].var
    return load.stride(last) not in (0, 1) or 0 < load.period(last) < SIZES[0]


def _scheduled(sch: Any, stage: Stage, body: LaneBody, machine: CpuMachine) -> Any:
    buffers = {load.buffer: None for load in stage.loads}  # each once, in order
    reads, writes = ([_whole(buffer) for buffer in group] for group in (buffers, [stage.write.buffer]))
    inside = sequence(body.statements)
    block = s_tir.SBlock(list(body.axes), reads, writes, stage.name, inside, alloc_buffers=list(body.buffers))
    moved = schedule_over(sch.mod["main"], [under_loops(block)], [])
    loops = moved.get_loops(moved.get_sblock(stage.name))
    in_parallel(moved, loops[: len(loops) - body.inner], machine, stage)
    return moved


def _whole(buffer: Any) -> Any:
    ranges = [tvm.ir.Range.from_min_extent(tirx.IntImm(str(n.ty.dtype), 0), n) for n in buffer.ty.shape]
    return tirx.BufferRegion(buffer, ranges)


def _in_squares(block: Any, stage: Stage, machine: CpuMachine, kind: type[LaneSquare]) -> LaneBody:
    """Squares of the last axis and the one along which such loads lie in memory."""
    store = store_of(block)
    operands = _crossed(store.value, stage)
    if not 0 < len(operands) <= MOST_SQUARES:
        raise Refused("more than registers hold" if operands else "nothing to transpose")
    loads = [load for one in operands for load in _loads_elsewhere(one, stage)]
    across = _axis_of(loads, stage)
    for size in sizes_along(stage, machine, stage.axes[-1].extent):
        for overlap in (True, False):
            square = unless_refused(partial(kind, block.iter_vars, across, size, overlap, operands, store))
            if square is None:
                continue
            return LaneBody(_as_read(square, across, stage, loads), square.statements, 1, square.buffers)
    raise Refused("no squares that lie in one piece each")


def _crossed(value: Any, stage: Stage) -> list[Any]:
    """Loads that lie elsewhere and are others in each row, and choices that have such, each once."""
    found: list[Any] = []

    def stays(node: Any) -> Any:
        if not any(_is_of_row(load, stage) for load in _loads_elsewhere(node, stage)):
            return None
        if not any(structural_equal(node, one) for one in found):
            found.append(node)
        return node

    structural_map_outermost(
        value, (tvm.ir.TensorLoad, stays), (tvm.ir.Call, lambda c: stays(c) if is_choice(c) else None)
    )
    named = [let.var for let in nodes_of(value, tirx.Let)]
    if any(is_one_of(var, named) for one in found for var in nodes_of(one, tirx.Var)):
        raise Refused("a place that is worked out")
    return found


def _is_of_row(load: Any, stage: Stage) -> bool:
    """It depends on more than the place in the row."""
    rows = [axis.var for axis in stage.axes[:-1]]
    return any(is_one_of(var, rows) for index in load.indices for var in nodes_of(index, tirx.Var))


def _loads_elsewhere(expr: Any, stage: Stage) -> list[Any]:
    return [load for load in nodes_of(expr, tvm.ir.TensorLoad) if _is_elsewhere(_access(load), stage)]


def _axis_of(crossed: Sequence[Any], stage: Stage) -> int:
    """The number of the axis along which all of these loads lie in memory."""
    numbers = range(len(stage.axes) - 1)
    found = (n for n in numbers if all(_access(load).stride(stage.axes[n].var) == 1 for load in crossed))
    across = next(found, None)
    if across is None:
        raise Refused("no axis along which the loads lie in memory")
    return across


def _as_read(square: LaneSquare, across: int, stage: Stage, crossed: Sequence[Any]) -> Sequence[Any]:
    """The axes of squares in the order in which what these read lies in memory, where that is known."""
    place, analyzer = _access(crossed[0]).place, tvm.sym.Analyzer()

    def step(number: int) -> int | None:
        var = stage.axes[number].var
        size = {across: square.size, len(stage.axes) - 1: square.width}.get(number, 1)
        first, next_one = (tirx.IntImm(str(var.ty.dtype), at) for at in (0, size))
        return as_int(analyzer.simplify(substitute(place, {var: next_one}) - substitute(place, {var: first})))

    steps = [step(number) for number in range(len(stage.axes))]
    known = [abs(one) for one in steps if one is not None]
    if len(known) < len(steps):
        return square.axes
    return [square.axes[number] for number in sorted(range(len(known)), key=lambda number: -known[number])]


def _access(load: Any) -> StageAccess:
    return StageAccess(load.source, tuple(load.indices))
