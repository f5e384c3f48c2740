"""Elementwise work whose operands lie otherwise than the result: transposes, resizes, strides.

In: a schedule over one stage with loads that do not move along memory as its store does. Out: a new one that reads
whole vectors and moves their elements to other lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi import structural_equal

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.few_vectors import from_few_vectors
from eqsat_layout.targets.cpu.single.interleaved_rows import interleaved_rows
from eqsat_layout.targets.cpu.single.lanes import (
    SIZES,
    LaneBody,
    Lanes,
    sizes_along,
    transposed_vectors,
    vector_at,
)
from eqsat_layout.targets.cpu.single.looked_up_rows import is_looked_up, looked_up_rows
from eqsat_layout.targets.cpu.single.loops import in_parallel
from eqsat_layout.targets.cpu.single.short_rows import short_rows
from eqsat_layout.targets.cpu.single.written_out_rows import written_out_rows
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.rebuild import CutAxis, schedule_over
from eqsat_layout.targets.schedules.stages import Stage, stages_of
from eqsat_layout.tir.analyzers import analyzer_of
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
    squares = partial(_in_squares, kind=_Square), partial(_in_squares, kind=_SquareInMemory)
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


def _in_squares(block: Any, stage: Stage, machine: CpuMachine, kind: type[_Square]) -> LaneBody:
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


class _Square:
    """``size`` elements of the axis number ``across`` and of the last one: the ``statements`` that make these.

    The rows that are left at the end: ``overlap``, the last square begins earlier; else it is read as a whole, from
    what pads the operand, and those rows are stored that there are. ``operands``: of ``store``, what is transposed.
    """

    def __init__(
        self, axes: Sequence[Any], across: int, size: int, overlap: bool, operands: Sequence[Any], store: Any
    ) -> None:
        self.size, self.statements, self.buffers = size, list[Any](), list[Any]()
        self.row, self.column = axes[across].var, axes[-1].var
        count, left = divmod(int(axes[across].dom.extent), size)
        if not (count if overlap else left):
            raise Refused("fewer rows than in a square" if overlap else "whole squares")
        self._left = size if overlap else left
        self._last = count  # the number of the square that has so many rows only
        extent = int(axes[-1].dom.extent)
        self.width = self._width_of(extent)
        self.columns = _cut(axes[-1], extent, self.width)
        self.rows = _cut(axes[across], count * size + (left if overlap else size), size)
        self.axes = [*axes[:-1], self.columns.number]
        self.axes[across] = self.rows.number
        self._memory = _Memory(self.axes, size)
        self._transposed: list[tuple[Any, list[list[Any]]]] = []
        self.transpose(operands)
        self.store(store)

    def _width_of(self, extent: int) -> int:
        """Elements of the last axis, of which there are so many, that are done at once."""
        return self.size

    def transpose(self, operands: Sequence[Any]) -> None:
        """Makes of ``operands``, loads or choices, vectors across the rows, square by square."""
        for one in operands:
            squares = [self._square_of(one, first) for first in range(0, self.width, self.size)]
            self._transposed.append((one, squares))

    def _square_of(self, one: Any, first: int) -> list[Any]:
        lanes = Lanes(self.row, self.size, self._down, _no_table, self._choice_down)
        places = range(first, first + self.size)
        columns = (substitute(one, {self.column: self.columns.first + place}) for place in places)
        return transposed_vectors([self._named(lanes.of(column)) for column in columns], self._named)

    def _down(self, load: Any) -> Any:
        return self._memory.vector(load, self.row, self.rows.first)

    def _choice_down(self, choice: Any) -> Any:
        """A choice that is the same for all rows."""
        lanes = Lanes(self.row, self.size, self._down, _no_table, self._choice_down)
        condition, *both = choice.args
        condition = self._memory.simple(condition)
        if any(var.same_as(self.row) for var in nodes_of(condition, tirx.Var)):
            raise Refused("choices by the row")
        known = as_int(condition)
        return tirx.if_then_else(condition, *map(lanes.of, both)) if known is None else lanes.of(both[not known])

    def store(self, store: Any) -> None:
        """The rows of the result."""
        for place in range(self.size if self._last else self._left):
            self.statements.append(self._row(store, place))

    def _row(self, store: Any, place: int) -> Any:
        """The one number ``place``, where there is one."""
        row = {self.row: self.rows.first + place}

        def vector(operand: Any) -> Any:
            return self._vector(operand, place, row)

        lanes = Lanes(self.column, self.size, vector, _no_table, vector)
        value = substitute(lanes.of(store.value), row)
        first = [substitute(index, {**row, self.column: self.columns.first}) for index in store.indices]
        stored = tirx.BufferStore(store.buffer, value, vector_at(first, self.size))
        return stored if place < self._left else tirx.IfThenElse(self._is_whole(), stored, None)

    def _is_whole(self) -> Any:
        """The square has all rows."""
        number = self.rows.number.var
        return number < tirx.IntImm(str(number.ty.dtype), self._last)

    def _vector(self, operand: Any, place: int, row: Mapping[Any, Any]) -> Any:
        number = self._number(operand)
        if number is not None:
            return self._transposed[number][1][0][place]
        if is_choice(operand):
            raise Refused("choices of what is not transposed")
        return self._memory.vector(substitute(operand, row), self.column, self.columns.first)

    def _number(self, operand: Any) -> int | None:
        """Of what is transposed."""
        return next((n for n, (one, _) in enumerate(self._transposed) if structural_equal(operand, one)), None)

    def _named(self, value: Any) -> Any:
        name = tirx.Var("v", value.ty)
        self.statements.append(tirx.Bind(name, value))
        return name


class _SquareInMemory(_Square):
    """The same for any function of what is transposed: this is kept in L1, and the rows are worked out from there.

    Small squares, of blocks that no larger ones divide, side by side: functions are of whole vectors.
    """

    def _width_of(self, extent: int) -> int:
        return max(self.size, min(SIZES[0], extent) // self.size * self.size)

    def store(self, store: Any) -> None:
        """The rows of the result, in a loop over the square: functions are long."""
        ty = self.column.ty
        place, lane = tirx.Var("place", ty), tirx.Var("lane", ty)
        if any(str(one.ty.dtype) == "bool" for one, _ in self._transposed):
            raise Refused("booleans are no bytes in memory of a kernel's own")
        for one, squares in self._transposed:
            name, shape = f"square{len(self.buffers)}", (self.size, self.width)
            self.buffers.append(tirx.decl_buffer(shape, str(one.ty.dtype), name, scope="local"))
            for (n, rows), number in itertools.product(enumerate(squares), range(self.size)):
                first = vector_at([tirx.IntImm(str(ty.dtype), at) for at in (number, n * self.size)], self.size)
                self.statements.append(tirx.BufferStore(self.buffers[-1], rows[number], first))

        def kept(node: Any) -> Any:
            number = self._number(node)
            return None if number is None else tirx.BufferLoad(self.buffers[number], [place, lane])

        value = structural_map_outermost(store.value, (tvm.ir.TensorLoad, kept), (tvm.ir.Call, kept))
        places = {self.row: self.rows.first + place, self.column: self.columns.first + lane}
        stored = tirx.BufferStore(
            store.buffer, substitute(value, places), [substitute(i, places) for i in store.indices]
        )
        whole, left = (tirx.IntImm(str(ty.dtype), n) for n in (self.size, self._left))
        count = whole if self._left == self.size else tirx.Select(self._is_whole(), whole, left)
        width = tirx.IntImm(str(ty.dtype), self.width)
        vector = tirx.For(lane, tirx.IntImm(str(ty.dtype), 0), width, tirx.ForKind.VECTORIZED, stored)
        self.statements.append(tirx.For(place, tirx.IntImm(str(ty.dtype), 0), count, tirx.ForKind.SERIAL, vector))


def _axis_of(crossed: Sequence[Any], stage: Stage) -> int:
    """The number of the axis along which all of these loads lie in memory."""
    numbers = range(len(stage.axes) - 1)
    found = (n for n in numbers if all(_access(load).stride(stage.axes[n].var) == 1 for load in crossed))
    across = next(found, None)
    if across is None:
        raise Refused("no axis along which the loads lie in memory")
    return across


def _as_read(square: _Square, across: int, stage: Stage, crossed: Sequence[Any]) -> Sequence[Any]:
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


def _cut(axis: Any, extent: int, size: int) -> CutAxis:
    return CutAxis.of(extent, -(-extent // size), size, str(axis.var.ty.dtype))


def _no_table(expr: Any) -> Any:
    raise Refused(f"{expr} depends on the place in the row")


class _Memory:
    """Vectors of ``size`` elements in memory, for any values of ``axes``."""

    def __init__(self, axes: Sequence[Any], size: int) -> None:
        self._analyzer, self._size = analyzer_of(axes), size

    def vector(self, load: Any, var: Any, first: Any) -> Any:
        """What ``load`` reads while ``var`` grows from ``first``; refused where that is not one piece."""
        start = self._indices(load, var, first)
        for step in range(1, self._size):
            moved = self._indices(load, var, first + step)
            by = [self._analyzer.simplify(new - old) for new, old in zip(moved, start, strict=True)]
            if [as_int(number) for number in by] != [0] * (len(by) - 1) + [step]:
                raise Refused("not in one piece")
        end = self._indices(load, var, first + self._size - 1)[-1]
        if not self._analyzer.can_prove(end < load.source.ty.shape[-1]):
            raise Refused("beyond the end of the operand")
        return tirx.BufferLoad(load.source, vector_at(start, self._size))

    def simple(self, expr: Any) -> Any:
        """The same in fewer words."""
        return self._analyzer.simplify(expr)

    def _indices(self, load: Any, var: Any, value: Any) -> list[Any]:
        return [self._analyzer.simplify(substitute(index, {var: value})) for index in load.indices]
