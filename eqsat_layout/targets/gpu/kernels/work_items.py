"""One kernel: work items that each compute a tile of a result in registers.

In: a nest, maybe a reduction that it reads element by element, and a :class:`ItemTile`. Out: statements of TIR without
blocks: the work items over all tiles; in each the accumulators, the loops of the reduction around them, and stores by
whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest
from eqsat_layout.targets.gpu.kernels.operands import Operands
from eqsat_layout.targets.gpu.kernels.vectors import LANES, as_vector_statement, is_image, stores_in_vectors
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL, WorkGroups
from eqsat_layout.targets.schedules.accesses import as_int, quotient, remainder
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import structural_map, substitute


@dataclass(frozen=True)
class ItemTile:
    """``lanes``: the axis whose elements fill a vector, or ``None``. ``sizes``: elements along others, by axis.

    ``steps``: the reduced axis of which a vector of elements is taken at a time, or ``None``.
    """

    lanes: int | None
    sizes: Mapping[int, int] = field(default_factory=dict)
    steps: int | None = None

    def size(self, axis: int) -> int:
        """Elements along ``axis``."""
        return LANES if axis == self.lanes else self.sizes.get(axis, 1)


def launch_of(nest: Nest, reduction: Nest | None, tile: ItemTile, groups: WorkGroups = USUAL) -> Any:
    """A statement that launches the work items. ``reduction``: what ``nest`` reads at one place for each element."""
    return KernelParts(nest, reduction, tile, groups).statement()


class KernelParts:
    """The parts that a kernel is put together of."""

    def __init__(self, nest: Nest, reduction: Nest | None, tile: ItemTile, groups: WorkGroups = USUAL) -> None:
        self._nest, self._tile, self._groups = nest, tile, groups
        self._reduction = nest if nest.reduced else reduction
        self._dtype = nest.spatial[0].var.ty.dtype if nest.spatial else "int64"
        self._analyzer = tvm.sym.Analyzer()
        self._group, self._item = self._thread("blockIdx.x"), self._thread("threadIdx.x")
        self._lane = self._new("lane", LANES)
        self._tiled = [self._new(f"t{i}", tile.size(i)) for i, _ in enumerate(nest.spatial) if self._is_tiled(i)]
        self._counts = [self._count(i, axis) for i, axis in enumerate(nest.spatial)]
        self._total = math.prod(self._counts, start=self._int(1))
        self._places = self._places_of_axes()

    def statement(self) -> Any:
        """All of it."""
        group = self._groups.size(as_int(self._total))
        self._analyzer.bind(self._item.var, tvm.ir.Range(0, group))
        groups = tvm.tirx.ceildiv(self._total, group)
        flat = self._group.var * group + self._item.var
        body = self._with_places(self._work(), flat)
        is_even = isinstance(self._total, tirx.IntImm) and int(self._total) % group == 0
        body = body if is_even else tirx.IfThenElse(flat < self._total, body, None)
        body = tirx.AttrStmt(self._item, "thread_extent", self._int(group), body)
        return tirx.AttrStmt(self._group, "thread_extent", self._analyzer.simplify(groups), body)

    def _work(self) -> Any:
        """What one work item does, over variables for the outer axes."""
        reduction = self._reduction
        if reduction is None:
            return self._stored(self._nest.stores, {})
        at = self._places if reduction is self._nest else self._places_in(reduction)
        if len(reduction.stores) == 1:
            return self._summed(reduction, at)
        accumulators = [self._registers(store.buffer) for store in reduction.stores]
        registers = dict(zip(reduction.buffers, accumulators, strict=True))
        starts = [self._kept(registers[i.buffer], self._placed(i.value, at, registers)) for i in reduction.inits]
        steps: list[Any] = []
        fresh = [self._registers(buffer) for buffer in reduction.buffers] if len(reduction.stores) > 1 else []
        values = [self._placed(store.value, at, registers) for store in reduction.stores]
        if fresh:  # all values are taken before any is stored
            steps = [self._kept(one, value) for one, value in zip(fresh, values, strict=True)]
            values = [self._loaded(one) for one in fresh]
        steps += [self._kept(one, value) for one, value in zip(accumulators, values, strict=True)]
        loop = sequence(steps)
        for axis in reversed(reduction.reduced):
            loop = tirx.For(axis.var, self._int(0, axis), axis.extent, tirx.ForKind.SERIAL, loop)
        ends = self._stored(self._final_stores(registers), registers)
        return sequence([*map(tirx.AllocBuffer, [*accumulators, *fresh]), *starts, loop, ends])

    def _summed(self, reduction: Nest, at: Mapping[Any, Any]) -> Any:
        """One sum: its operands are loaded once, each along those axes of the tile that it moves with."""
        ((start,), (store,)) = reduction.inits, reduction.stores
        sums = self._registers(store.buffer)
        registers = {store.buffer: sums}
        loops = [(axis.var, axis.extent) for axis in reduction.reduced]
        step = None
        if self._tile.steps is not None:
            axis = reduction.reduced[self._tile.steps]
            step, outer = self._new("step", LANES), tirx.Var(f"{axis.var.name}_o", axis.var.ty.dtype)
            count = int(axis.extent) // LANES
            self._analyzer.bind(outer, tvm.ir.Range(0, count))
            at = {**at, axis.var: outer * LANES + step if count > 1 else step}
            loops = [*(one for one in loops if not one[0].same_as(axis.var)), (outer, self._int(count))]
        value = self._placed(store.value, at, registers)
        tiled = [(var, self._tile.size(number)) for number, var in self._vars_of_tile()]
        operands = Operands(tiled, self._lane if self._tile.lanes is not None else None, step, sums)
        value = operands.replaced(value)
        update = self._kept(sums, value)
        if step is not None:
            update = tirx.For(step, self._int(0), self._int(LANES), tirx.ForKind.UNROLLED, update)
        body = sequence([*operands.statements, update])
        for var, extent in reversed(loops):
            zero = tirx.IntImm(var.ty.dtype, 0)
            is_one = isinstance(extent, tirx.IntImm) and int(extent) == 1
            body = substitute(body, {var: zero}) if is_one else tirx.For(var, zero, extent, tirx.ForKind.SERIAL, body)
        begin = self._kept(sums, self._placed(start.value, at, registers))
        ends = self._stored(self._final_stores(registers), registers)
        return sequence([tirx.AllocBuffer(sums), begin, body, ends])

    def _final_stores(self, registers: Mapping[Any, Any]) -> list[Any]:
        """The nest's own, or for a reduction alone: what the registers hold."""
        if self._reduction is not self._nest:
            return list(self._nest.stores)
        own = self._nest.stores
        return [tirx.BufferStore(s.buffer, self._loaded(registers[s.buffer]), list(s.indices)) for s in own]

    def _stored(self, stores: Sequence[Any], registers: Mapping[Any, Any]) -> Any:
        """Values into registers first, and from there by whole vectors: half of a texel can't be stored."""
        done: list[Any] = []
        for store in stores:
            value = self._placed(store.value, self._places, registers)
            indices = [self._simple(index, self._places) for index in store.indices]
            target = tirx.BufferStore(store.buffer, value, indices)
            if self._tile.lanes is None or as_vector_statement(target, self._lane):
                done.append(self._looped(target))
                continue
            own = self._registers(store.buffer)
            target = tirx.BufferStore(store.buffer, self._loaded(own), indices)
            done += [tirx.AllocBuffer(own), self._kept(own, value), self._looped(target)]
        return sequence(done)

    def _kept(self, registers: Any, value: Any) -> Any:
        return self._looped(tirx.BufferStore(registers, value, self._at()))

    def _looped(self, store: Any) -> Any:
        """``store`` for all elements of the tile."""
        body = store
        if self._tile.lanes is not None:
            whole = as_vector_statement(store, self._lane)
            if is_image(store.buffer):
                assert stores_in_vectors(store, self._lane), f"{store}: part of a texel"
            kind = tirx.ForKind.VECTORIZED if whole else tirx.ForKind.UNROLLED
            body = tirx.For(self._lane, self._int(0), self._int(LANES), kind, body)
        for number, var in reversed(self._vars_of_tile()):
            extent = self._int(self._tile.size(number))
            body = tirx.For(var, self._int(0), extent, tirx.ForKind.UNROLLED, body)
        return body

    def _registers(self, buffer: Any) -> Any:
        count = math.prod(self._tile.size(i) for i in range(len(self._nest.spatial)))
        name, dtype = f"{buffer.name}_local", str(buffer.ty.dtype)
        return tirx.decl_buffer([self._int(count)], dtype, name, scope="local", layout=None)

    def _loaded(self, registers: Any) -> Any:
        return tirx.BufferLoad(registers, self._at())

    def _at(self) -> list[Any]:
        """Where in the registers the element of the tile is; lanes are last."""
        index = self._int(0)
        for number, var in self._vars_of_tile():
            index = index * self._tile.size(number) + var
        return [index * LANES + self._lane if self._tile.lanes is not None else index]

    def _placed(self, value: Any, places: Mapping[Any, Any], registers: Mapping[Any, Any]) -> Any:
        """``value`` for the element of the tile; what is in registers is read from there."""

        def on_load(load: Any) -> Any:
            if load.source in registers:
                return self._loaded(registers[load.source])
            return tirx.BufferLoad(load.source, [self._analyzer.simplify(index) for index in load.indices])

        return structural_map(substitute(value, places), (tvm.ir.TensorLoad, on_load))

    def _simple(self, index: Any, places: Mapping[Any, Any]) -> Any:
        return self._analyzer.simplify(substitute(index, places))

    def _places_in(self, reduction: Nest) -> Mapping[Any, Any]:
        """The spatial axes of the reduction where the nest reads it."""
        indices = self._nest.loads(reduction.buffers[0])[0].indices
        at = [self._simple(index, self._places) for index in indices]
        return {axis.var: place for axis, place in zip(reduction.spatial, at, strict=True)}

    # ---- where the tile is

    def _places_of_axes(self) -> Mapping[Any, Any]:
        """Each axis by a variable that counts tiles, and the place in the tile."""
        inner = dict(self._vars_of_tile()) | ({} if self._tile.lanes is None else {self._tile.lanes: self._lane})
        places: dict[Any, Any] = {}
        self._outer: list[Any] = []
        for number, (axis, count) in enumerate(zip(self._nest.spatial, self._counts, strict=True)):
            is_one = isinstance(count, tirx.IntImm) and int(count) == 1
            outer = self._int(0) if is_one else self._new(f"{axis.var.name}_o", count)
            self._outer.append(outer)
            place = outer * self._tile.size(number) + inner[number] if number in inner else outer
            places[axis.var] = self._analyzer.simplify(place)
        for axis in () if self._reduction is None else self._reduction.reduced:
            self._analyzer.bind(axis.var, tvm.ir.Range(self._int(0, axis), axis.extent))
        return places

    def _with_places(self, body: Any, flat: Any) -> Any:
        """The variables that count tiles as what they are of the work item's number."""
        values: dict[Any, Any] = {}
        for outer, count in zip(reversed(self._outer), reversed(self._counts), strict=True):
            if isinstance(outer, tvm.ir.Var):
                is_first = outer.same_as(self._outer[0])
                values[outer] = self._analyzer.simplify(flat if is_first else remainder(flat, count))
            flat = quotient(flat, count)
        bound = [tirx.Bind(var, value) for var, value in values.items()]
        return sequence([*bound, body])

    def _count(self, number: int, axis: Axis) -> Any:
        size = self._tile.size(number)
        return self._analyzer.simplify(tirx.floordiv(axis.extent, size)) if size > 1 else axis.extent

    def _is_tiled(self, number: int) -> bool:
        return number != self._tile.lanes and self._tile.size(number) > 1

    def _vars_of_tile(self) -> list[tuple[int, Any]]:
        numbers = [i for i in range(len(self._nest.spatial)) if self._is_tiled(i)]
        return list(zip(numbers, self._tiled, strict=True))

    def _new(self, name: str, extent: Any) -> Any:
        var = tirx.Var(name, self._dtype)
        extent = self._int(extent) if isinstance(extent, int) else extent
        self._analyzer.bind(var, tvm.ir.Range(self._int(0), extent))
        return var

    def _thread(self, tag: str) -> Any:
        return tirx.IterVar(None, tirx.Var(tag, self._dtype), tirx.IterVar.ThreadIndex, tag)

    def _int(self, value: int, axis: Axis | None = None) -> Any:
        return tirx.IntImm(self._dtype if axis is None else axis.var.ty.dtype, value)
