"""Rows that interleave several runs of memory: pixel shuffles, halves put together element by element.

In: a block whose value depends on the remainder of the place in the row. Out: statements that read each of these places
in whole vectors and put the elements together; where channels lie in blocks, squares of them are transposed first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.lanes import (
    LaneBody,
    Lanes,
    lanes_of_stage,
    shuffled,
    transposed_vectors,
    vector_at,
)
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.rebuild import CutAxis
from eqsat_layout.targets.schedules.stages import Stage, divisors
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import store_of
from eqsat_layout.tir.structural import nodes_of, structural_map, substitute

_MOST_TURNS = 8
_MOST_VECTORS = 64  # of the result that are made at once: straight code takes LLVM long


def interleaved_rows(block: Any, stage: Stage, machine: CpuMachine) -> LaneBody:
    """The statements, for a tile of one vector of each place; refused where nothing takes turns."""
    return _Turns(block, stage, machine).body()


class _Turns:
    """The last axis is ``turns * element + turn``; other axes that choose an element of a block of channels are cut."""

    def __init__(self, block: Any, stage: Stage, machine: CpuMachine) -> None:
        self._store = store_of(block)
        *self._outer, self._row = block.iter_vars
        extent = int(self._row.dom.extent)
        self._turns = math.lcm(1, *_divisors_of(self._store.value, self._row.var))
        if not 1 < self._turns <= _MOST_TURNS or extent % self._turns:
            raise Refused("no turns")
        each = extent // self._turns
        self._size = lanes_of_stage(stage, machine, each)
        dtype = str(self._row.var.ty.dtype)
        self._tile = CutAxis.of(each, -(-each // self._size), self._size, dtype)
        self._place, self._first = tirx.Var("j", dtype), tirx.Var("f", dtype)
        self._analyzer = tvm.sym.Analyzer()
        self._analyzer.bind(self._place, tvm.ir.Range(0, self._size))
        self._analyzer.bind(self._first, tvm.ir.Range(0, each - self._size + 1))
        self._statements: list[Any] = []
        self._squares: list[tuple[Any, list[Any], int, list[Any]]] = []
        self._digits = self._cut_outer()

    def body(self) -> LaneBody:
        """All statements, and the axes around them."""
        axes = []
        for axis, (size, var) in zip(self._outer, self._digits, strict=True):
            count = tvm.ir.Range(0, tirx.IntImm(str(var.ty.dtype), int(axis.dom.extent) // size))
            axes.append(tirx.IterVar(count, var, axis.iter_type))
        for digits in itertools.product(*(range(size) for size, _ in self._digits)):
            self._store_row({a.var: v * n + d for a, (n, v), d in zip(self._outer, self._digits, digits, strict=True)})
        return LaneBody([*axes, self._tile.number], self._statements, 1)

    def _store_row(self, places: Mapping[Any, Any]) -> None:
        """A vector of every turn, in as many vectors of the result."""
        values = [self._value(places, turn) for turn in range(self._turns)]
        for number in range(self._turns):
            elements = range(number * self._size, (number + 1) * self._size)
            lanes = [e % self._turns * self._size + e // self._turns for e in elements]
            first = self._tile.first * self._turns + number * self._size
            at = [self._analyzer.simplify(substitute(i, places)) for i in self._store.indices[:-1]]
            self._statements.append(
                tirx.BufferStore(self._store.buffer, shuffled(values, lanes), vector_at([*at, first], self._size))
            )

    def _value(self, places: Mapping[Any, Any], turn: int) -> Any:
        element = (self._first + self._place) * self._turns + turn
        value = self._known(substitute(self._store.value, {**places, self._row.var: element}))
        vector = Lanes(self._place, self._size, self._load, _no_table).of(value)
        return self._named(substitute(vector, {self._first: self._tile.first}))

    def _known(self, value: Any) -> Any:
        """Without conditions that are known, and with simple indices: arithmetic on values stays as it is."""

        def on_load(load: Any) -> Any:
            return tirx.BufferLoad(load.source, [self._analyzer.simplify(index) for index in load.indices])

        def on_choice(choice: Any) -> Any:
            if isinstance(choice, tirx.Select):
                condition, *both = choice.condition, choice.true_value, choice.false_value
            elif str(getattr(choice.op, "name", "")).endswith(".if_then_else"):
                condition, *both = choice.args
            else:
                return choice
            found = as_int(self._analyzer.simplify(condition))
            return choice if found is None else both[not found]

        return structural_map(value, (tvm.ir.TensorLoad, on_load), ((tvm.ir.Call, tirx.Select), on_choice))

    def _load(self, load: Any) -> Any:
        """What a load reads for all places of a vector."""
        start, *rest = ([self._at(index, place) for index in load.indices] for place in range(self._size))
        steps = [[as_int(self._analyzer.simplify(b - a)) for a, b in zip(start, one, strict=True)] for one in rest]
        if all(step == [0] * (len(step) - 1) + [n] for n, step in enumerate(steps, 1)):
            return tirx.BufferLoad(load.source, vector_at(start, self._size))
        lane = as_int(start[-1])
        if lane is None or any(step[-1] != 0 for step in steps):
            raise Refused("elements of several vectors")
        low = lane - lane % self._size
        if low + self._size > int(load.source.ty.shape[-1]):
            raise Refused("no vector in the row")
        return self._square(load.source, [indices[:-1] for indices in (start, *rest)], low)[lane - low]

    def _square(self, source: Any, rows: Sequence[list[Any]], low: int) -> list[Any]:
        """The columns of a square: elements of ``source`` from ``low`` on at the places of a vector."""
        for known, first, place, columns in self._squares:
            if known.same_as(source) and place == low and tvm_ffi.structural_equal(first, rows[0]):
                return columns
        vectors: list[Any] = []
        for row in rows:
            indices = [substitute(index, {self._first: self._tile.first}) for index in row]
            at = vector_at([*indices, tirx.IntImm(str(self._row.var.ty.dtype), low)], self._size)
            vectors.append(self._named(tirx.BufferLoad(source, at)))
        columns = transposed_vectors(vectors, self._named)
        self._squares.append((source, rows[0], low, columns))
        return columns

    def _named(self, value: Any) -> Any:
        name = tirx.Var("v", value.ty)
        self._statements.append(tirx.Bind(name, value))
        return name

    def _at(self, index: Any, place: int) -> Any:
        return self._analyzer.simplify(substitute(index, {self._place: tirx.IntImm(str(self._place.ty.dtype), place)}))

    def _cut_outer(self) -> list[tuple[int, Any]]:
        """For each other axis, how many neighbours are made at once, and the variable of the outer part."""
        loads = nodes_of(self._store.value, tvm.ir.TensorLoad)
        crossed = [load for load in loads if any(depends_on(index, self._row.var) for index in load.indices[:-1])]
        lanes = [load.indices[-1] for load in crossed]
        cut = [(self._neighbours(axis, lanes), tirx.Var(axis.var.name, axis.var.ty.dtype)) for axis in self._outer]
        if math.prod(size for size, _ in cut) * self._turns > _MOST_VECTORS:
            raise Refused("more than straight code is good for")
        for axis, (size, var) in zip(self._outer, cut, strict=True):
            self._analyzer.bind(var, tvm.ir.Range(0, int(axis.dom.extent) // size))
        return cut

    def _neighbours(self, axis: Any, lanes: Sequence[Any]) -> int:
        """The fewest after which every one of ``lanes`` is the same again."""
        used = [index for index in lanes if depends_on(index, axis.var)]
        analyzer, rest = analyzer_of((*self._outer, self._row)), tirx.Var("rest", axis.var.ty.dtype)
        for size in divisors(int(axis.dom.extent), self._size):
            moved = [substitute(index, {axis.var: rest * size + digit}) for index in used for digit in range(size)]
            if not any(depends_on(analyzer.simplify(index), rest) for index in moved):
                return size
        raise Refused("lanes that are others each time")


def _divisors_of(value: Any, var: Any) -> Iterator[int]:
    """The numbers that ``var`` is divided by."""
    for node in nodes_of(value, tirx.FloorDiv, tirx.FloorMod):
        number = as_int(node.b)
        if node.a.same_as(var) and number:
            yield number


def _no_table(expr: Any) -> Any:
    raise Refused(f"{expr} depends on the place in the row")
