"""Squares of lanes: what lies along memory comes to lie across it, a vector at a time.

In: a stage and the two axes that change places. Out: the statements of one square, in registers or over memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.single.lanes import SIZES, Lanes, transposed_vectors, vector_at
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.rebuild import CutAxis
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of, structural_map_outermost, substitute


class LaneSquare:
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


class SquareInMemory(LaneSquare):
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
