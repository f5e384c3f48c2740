"""Rows of two or four narrow elements, each from another plane: the colours of a pixel, side by side.

In: a block whose last axis is such a row, and whose operands move along memory with the axis before it. Out:
statements that make vectors of each element of several rows, and put these together in one store. Rows at the ends of a
line, which are a border, are made element by element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import LaneBody, shuffled, table_of
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int, depends_on
from eqsat_layout.targets.schedules.rebuild import CutAxis
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.blocks import sequence, store_of
from eqsat_layout.tir.intrinsics import conjuncts, is_choice
from eqsat_layout.tir.structural import nodes_of, structural_map, substitute

_ELEMENTS = (2, 4)  # of a row
_FEWEST = 8  # rows of a vector: of fewer, squares are transposed


def short_rows(block: Any, stage: Stage, machine: CpuMachine) -> LaneBody:
    """The statements, for a tile of as many rows as a vector of results holds."""
    return _ShortRows(block, stage, machine).body()


class _ShortRows:
    def __init__(self, block: Any, stage: Stage, machine: CpuMachine) -> None:
        self._store = store_of(block)
        if len(block.iter_vars) < 2:
            raise Refused("a row alone")
        *self._outer, self._line, self._row = block.iter_vars
        self._count, self._extent = int(self._row.dom.extent), int(self._line.dom.extent)
        self._size = machine.lanes(stage.write.element_bytes) // self._count
        strides = [stage.write.stride(axis.var) for axis in (self._line, self._row)]
        if self._count not in _ELEMENTS or self._size < _FEWEST or strides != [self._count, 1]:
            raise Refused("no rows of few narrow elements")
        self._dtype = str(self._line.var.ty.dtype)

    def body(self) -> LaneBody:
        """All statements, and the axes around them."""
        values = [
            self._known(substitute(self._store.value, {self._row.var: self._number(element)}))
            for element in range(self._count)
        ]
        inside = np.logical_and.reduce([self._inside(value) for value in values])
        places = np.flatnonzero(inside)
        low, high = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
        if high - low < self._size or not inside[low:high].all():
            raise Refused("no vector of rows")
        tile = CutAxis.of(high - low, -(-(high - low) // self._size), self._size, self._dtype)
        first, last = tile.first + low, int(tile.number.dom.extent) - 1
        elements = tirx.decl_buffer((self._count * self._size,), self._store.buffer.ty.dtype, "elements", scope="local")
        statements = [self._made(elements, number, value, first) for number, value in enumerate(values)]
        lanes = [row + element * self._size for row in range(self._size) for element in range(self._count)]
        whole = tirx.BufferLoad(elements, [_ramp(self._number(0), len(lanes))])
        at = [
            substitute(index, {self._line.var: first, self._row.var: self._number(0)}) for index in self._store.indices
        ]
        statements.append(
            tirx.BufferStore(self._store.buffer, shuffled([whole], lanes), [*at[:-1], _ramp(at[-1], len(lanes))])
        )
        for number, start, end in ((0, 0, low), (last, high, self._extent)):
            if end > start:
                statements.append(tirx.IfThenElse(tile.number.var == number, self._one_by_one(start, end), None))
        return LaneBody([*self._outer, tile.number], statements, 1, [elements])

    def _made(self, elements: Any, number: int, value: Any, first: Any) -> Any:
        """One element of all rows of a vector."""
        value = structural_map(value, (tvm.ir.Call, self._chosen))
        for load in nodes_of(value, tvm.ir.TensorLoad):
            access = StageAccess(load.source, tuple(load.indices))
            if access.stride(self._line.var) not in (0, 1) or access.period(self._line.var):
                raise Refused("rows that are not neighbours in the operand")
        lane = tirx.Var("lane", self._dtype)
        made = substitute(value, {self._line.var: first + lane})
        store = tirx.BufferStore(elements, made, [lane + number * self._size])
        return tirx.For(lane, self._number(0), self._number(self._size), tirx.ForKind.VECTORIZED, store)

    def _one_by_one(self, start: int, end: int) -> Any:
        line = tirx.Var("line", self._dtype)

        def store(element: int) -> Any:
            at = {self._line.var: line + start, self._row.var: self._number(element)}
            indices = [substitute(index, at) for index in self._store.indices]
            return tirx.BufferStore(self._store.buffer, substitute(self._store.value, at), indices)

        stores = sequence([store(element) for element in range(self._count)])
        return tirx.For(line, self._number(0), self._number(end - start), tirx.ForKind.SERIAL, stores)

    def _known(self, value: Any) -> Any:
        """Without conditions that are known."""
        analyzer = tvm.sym.Analyzer()

        def on_choice(call: Any) -> Any:
            known = as_int(analyzer.simplify(call.args[0])) if is_choice(call) else None
            return call if known is None else call.args[1 if known else 2]

        return structural_map(value, (tvm.ir.Call, on_choice))

    def _inside(self, value: Any) -> Any:
        """At which places of the line all choices by the place take their first side."""
        places = np.arange(self._extent)
        found = np.ones(self._extent, bool)
        for choice in filter(is_choice, nodes_of(value, tvm.ir.Call)):
            for term in self._terms_by_place(choice.args[0]):
                found &= table_of(term, self._line.var, places).astype(bool)
        return found

    def _chosen(self, call: Any) -> Any:
        """A choice at such places: without what is known there."""
        if not is_choice(call) or not self._terms_by_place(call.args[0]):
            return call
        rest = [term for term in conjuncts(call.args[0]) if not depends_on(term, self._line.var)]
        return tirx.if_then_else(tirx.all(*rest), *call.args[1:]) if rest else call.args[1]

    def _terms_by_place(self, condition: Any) -> list[Any]:
        return [term for term in conjuncts(condition) if depends_on(term, self._line.var)]

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._dtype, value)


def _ramp(start: Any, lanes: int) -> Any:
    return tirx.Ramp(start, tirx.IntImm(str(start.ty.dtype), 1), lanes)
