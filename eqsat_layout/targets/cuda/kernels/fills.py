"""How a tile of an operand comes to shared memory: asynchronously, by as many bytes as lie together; or by element.

In: an operand, its outer group of axes and the inner one along which units lie, and the shape of the tile. Out: the
statements that fill one stage. Units of 16 bytes are exchanged within a row so that neither these copies nor the loads
of fragments meet in a bank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.arithmetics import UNIT, Arithmetic
from eqsat_layout.targets.cuda.kernels.operands import FlatAxes, Operand
from eqsat_layout.targets.cuda.kernels.runs import in_runs
from eqsat_layout.targets.cuda.kernels.statements import (
    PTX,
    address,
    all_of,
    guarded,
    kept,
    loop,
    number,
    sequence_of,
)
from eqsat_layout.tir.structural import substitute

_WORD: Final = 4
"""Bytes."""
_LINE: Final = 8
"""Units in a row of all banks of shared memory."""


@dataclass(frozen=True)
class TileShape:
    """``rows`` of ``units`` of 16 bytes in shared memory."""

    rows: int
    units: int

    @staticmethod
    def of(rows: int, units: int, *, by_word: int = 0) -> TileShape:
        """The exchange with more units, where so few, or an odd number, could not be exchanged."""
        least = _LINE if by_word else next((n for n in (1, 2, 4) if n >= units), _LINE)
        return TileShape(rows, -(-units // least) * least)

    @property
    def words(self) -> int:
        return self.rows * self.units * (UNIT // _WORD)

    def word(self, row: Any, unit: Any, exchange: Any) -> Any:
        """Where a unit begins, in words from the beginning of the tile. ``exchange``: :meth:`exchange` of the row."""
        return row * (self.units * (UNIT // _WORD)) + tirx.bitwise_xor(unit, exchange) * (UNIT // _WORD)

    def exchange(self, row: Any, *, by_word: int = 0) -> Any:
        """What the units of a row are exchanged by. ``by_word``: see :class:`Fill`."""
        if by_word:
            return tirx.floormod(tirx.floordiv(row, by_word), 4) * 2
        width = min(self.units, _LINE)
        return tirx.floormod(tirx.floordiv(row, _LINE // width), width)


@dataclass(frozen=True)
class Shared:
    """Shared memory of a block: as words, and as elements of an operand."""

    words: Any
    elements: Any

    @staticmethod
    def of(words: int, arithmetic: Arithmetic, aligned: int = 128) -> Shared:
        """Words have the type of sums, which are there too; they begin at a multiple of so many bytes."""
        dtype = arithmetic.operand
        whole = tirx.decl_buffer(
            [number(words)], arithmetic.sums, "shared", scope="shared.dyn", data_alignment=aligned, layout=None
        )
        if dtype == arithmetic.sums:
            return Shared(whole, whole)
        size = words * _WORD * 8 // tvm.DataType(dtype).bits
        name = f"shared_{dtype}"
        view = tirx.decl_buffer([number(size)], dtype, name, data=whole.data, scope="shared.dyn", layout=None)
        return Shared(whole, view)

    def allocated(self) -> list[Any]:
        """The statements in front of all others."""
        views = [] if self.elements is self.words else [tirx.DeclBuffer(self.elements, data=self.words.data)]
        return [tirx.AllocBuffer(self.words), *views]


def bytes_together(operand: Operand, inner: FlatAxes, fixed: Mapping[Any, Any], arithmetic: Arithmetic) -> int:
    """Of 16, 8 and 4 the most bytes of the operand that lie together along ``inner``, one guard for all; else 0."""
    if operand.guarded is None or not arithmetic.takes(operand.dtype):
        return 0
    load, condition = operand.guarded
    for together in (16, 8, 4):
        count = together // arithmetic.operand_bytes
        if in_runs(load.source, list(load.indices), inner, count, fixed, condition):
            return together
    return 0


@dataclass(frozen=True)
class Fill:
    """``outer`` and ``inner``: the groups that rows and units of a tile run along.

    ``together``: bytes of one asynchronous copy, 0: elements are loaded one by one. ``is_even``: both groups end with
    a tile. ``by_word``: 0 where fragments are loaded by whole matrices; else word by word, of four rows at once
    that are so far apart.
    """

    operand: Operand
    outer: FlatAxes
    inner: FlatAxes
    shape: TileShape
    arithmetic: Arithmetic
    together: int
    fixed: Mapping[Any, Any]
    is_even: tuple[bool, bool]
    by_word: int

    def statement(self, shared: Shared, start: Any, outer: Any, inner: Any, thread: Any, threads: int) -> Any:
        """The tile whose first element has these numbers in its groups, to word ``start`` of shared memory."""
        if self._runs_along_rows:
            rows = math.gcd(self.shape.rows, threads)
            columns = min(threads // rows, self.shape.units)
            row, column = tirx.floormod(thread, rows), tirx.floordiv(thread, rows)
        else:
            columns = math.gcd(self.shape.units, threads)
            rows = threads // columns
            column, row = tirx.floormod(thread, columns), tirx.floordiv(thread, columns)

        def unit(turn: int, part: int) -> Any:
            here = row + turn * rows
            there = column + part * columns
            inside = [
                None if (turn + 1) * rows <= self.shape.rows else here < self.shape.rows,
                None if rows * columns == threads else thread < rows * columns,
                None if (part + 1) * columns <= self.shape.units else there < self.shape.units,
            ]
            return guarded(all_of(inside), self._unit(shared, start, outer, inner, here, there))

        turns, parts = -(-self.shape.rows // rows), -(-self.shape.units // columns)
        return sequence_of(unit(turn, part) for turn in range(turns) for part in range(parts))

    @property
    def _runs_along_rows(self) -> bool:
        """Elements come one by one, and neighbours in memory are those of neighbouring rows."""
        is_single = self.together <= self.arithmetic.operand_bytes
        return is_single and any(self.operand.stride(axis) == 1 for axis in self.outer.axes[-1:])

    def _unit(self, shared: Shared, start: Any, outer: Any, inner: Any, row: Any, unit: Any) -> Any:
        word = start + self.shape.word(row, unit, self.shape.exchange(row, by_word=self.by_word))
        element = inner + unit * self.arithmetic.unit
        if not self.together:
            scale = _WORD // self.arithmetic.operand_bytes

            def store(lane: Any) -> Any:
                value = self._element(outer + row, element + lane)
                return kept(shared.elements, value, word * scale + lane)

            return loop(self.arithmetic.unit, store, tirx.ForKind.UNROLLED)
        lanes = self.together // self.arithmetic.operand_bytes
        assert self.operand.guarded is not None
        load, guard = self.operand.guarded

        def copy(part: int) -> Any:
            places, inside = self._places(outer + row, element + part * lanes)
            condition = all_of([*inside, self._placed(guard, places)])
            size: Any = tirx.IntImm("uint32", self.together)
            if condition is not None:
                size = tirx.Select(condition, size, tirx.IntImm("uint32", 0))
            how = "cg" if self.together == UNIT else "ca"
            source = address(load.source, *(self._placed(index, places) for index in load.indices))
            target = address(shared.words, word + part * (self.together // _WORD))
            return tirx.Evaluate(PTX[f"cp.async.{how}.shared.global"](target, source, number(self.together), size))

        return sequence_of(copy(part) for part in range(UNIT // self.together))

    def _element(self, outer: Any, inner: Any) -> Any:
        """One element as tensor cores take it; zero beyond the ends."""
        places, inside = self._places(outer, inner)
        value = substitute(self.operand.value, places)
        if str(value.ty.dtype) != self.arithmetic.operand:
            value = tirx.Cast(self.arithmetic.operand, value)
        condition = all_of(inside)
        zero = tirx.const(0, self.arithmetic.operand)
        return value if condition is None else tirx.if_then_else(condition, value, zero)

    def _places(self, outer: Any, inner: Any) -> tuple[Mapping[Any, Any], list[Any]]:
        """Along all axes, and the conditions for being inside."""
        inside = [
            None if is_even else at < group.extent
            for is_even, at, group in zip(self.is_even, (outer, inner), (self.outer, self.inner), strict=True)
        ]
        return {**self.fixed, **self.outer.at(outer), **self.inner.at(inner)}, inside

    def _placed(self, expression: Any, places: Mapping[Any, Any]) -> Any:
        return tvm.sym.Analyzer().simplify(substitute(expression, places))
