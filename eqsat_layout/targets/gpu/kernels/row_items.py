"""Rows in one launch, a work item for each: what stages tell each other stays in registers.

In: nests that all run over the same rows (softmax over a middle axis, norms and means of short rows), of which one at
least reduces a row. Out: a statement that launches them. What depends on an element is computed from it again by each
stage that needs it. Refused: long rows that are fewer than keep a device busy, or of which neighbours lie apart in
memory, images, and stages that keep more than a number for a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest, made_again
from eqsat_layout.targets.gpu.kernels.serial import launched_loops
from eqsat_layout.targets.gpu.kernels.vectors import is_image
from eqsat_layout.targets.gpu.kernels.work_groups import WorkGroups
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

_SHORT: Final = 32
"""Elements of a row that a cache keeps for a work item which goes through them several times (assumed)."""


def row_items(nests: Sequence[Nest], parameters: Sequence[Any], groups: WorkGroups) -> Any:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is not all over the same rows."""
    if any(map(is_image, parameters)):
        raise Refused("images are written by whole texels")
    return _Rows(made_again(nests, parameters), parameters).statement(groups)


class _Rows:
    """``_loops``: over rows, those of the first reduction. ``_numbers``: the register of what each row has one of.
    ``_dims``: which of the loops each index of it is, ``None`` for one that is always 0."""

    def __init__(self, nests: Sequence[Nest], parameters: Sequence[Any]) -> None:
        self._nests, self._parameters = nests, parameters
        first = next((nest for nest in nests if nest.reduced), None)
        if first is None:
            raise Refused("it reduces nothing")
        self._axes = [Axis(tirx.Var(axis.var.name, axis.var.ty.dtype), axis.extent) for axis in first.spatial]
        self._written = [buffer for nest in nests for buffer in nest.buffers]
        self._numbers: dict[Any, Any] = {}
        self._dims: dict[Any, list[int | None]] = {}

    def statement(self, groups: WorkGroups) -> Any:
        """The launch."""
        stages = [self._stage(nest, groups) for nest in self._nests]
        body = sequence([*map(tirx.AllocBuffer, self._numbers.values()), *stages])
        loops = [tirx.For(axis.var, _zero(axis), axis.extent, tirx.ForKind.SERIAL, body) for axis in self._axes]
        return launched_loops(loops, body, groups)

    def _stage(self, nest: Nest, groups: WorkGroups) -> Any:
        """What a work item does of the nest."""
        if len(nest.stores) != 1:
            raise Refused(f"{nest.name} has several results")
        (store,), places = nest.stores, self._places(nest)
        inner = [axis for axis in nest.spatial if axis.var not in places]
        self._check(nest, [*inner, *nest.reduced], groups)
        is_result = is_one_of(store.buffer, self._parameters)
        if inner and (nest.reduced or not is_result):
            raise Refused(f"{nest.name} keeps more than a number for a row")
        if inner:
            return self._looped(inner, self._placed(store, places))
        self._number(store, places)
        register = self._numbers[store.buffer]
        value = self._placed(tirx.BufferStore(register, store.value, [tirx.IntImm("int32", 0)]), places)
        done = [self._looped(nest.reduced, value)]
        for init in nest.inits:
            done.insert(0, self._placed(tirx.BufferStore(register, init.value, [tirx.IntImm("int32", 0)]), places))
        if is_result:
            indices = [substitute(index, places) for index in store.indices]
            done.append(tirx.BufferStore(store.buffer, _loaded(register), indices))
        return sequence(done)

    def _places(self, nest: Nest) -> dict[Any, Any]:
        """The axes of the nest that say which row it is, as the loops over rows; those of one step are 0."""
        read = [load for load in nest.loads() if load.source in self._numbers]
        found: dict[Any, Any] = {}
        for load in read:
            for index, number in zip(load.indices, self._dims[load.source], strict=True):
                row = None if number is None else self._axes[number]
                if row and not _is_one(row) and found.setdefault(index, row.var) is not row.var:
                    raise Refused(f"{nest.name} reads several rows")
        if not read and len(nest.spatial) == len(self._axes):
            found = {own.var: row.var for own, row in zip(nest.spatial, self._axes, strict=True)}
        extents = {axis.var: axis.extent for axis in nest.spatial}
        rows = {axis.var: axis.extent for axis in self._axes}
        if not all(own in extents and tvm_ffi.structural_equal(extents[own], rows[row]) for own, row in found.items()):
            raise Refused(f"{nest.name} has other rows")
        if sorted(map(id, found.values())) != sorted(id(a.var) for a in self._axes if not read or not _is_one(a)):
            raise Refused(f"{nest.name} has other rows")
        return found | {axis.var: _zero(axis) for axis in nest.spatial if axis.var not in found and _is_one(axis)}

    def _number(self, store: Any, places: Mapping[Any, Any]) -> None:
        """Room for what the store keeps, one for each row."""
        loops = {axis.var: number for number, axis in enumerate(self._axes)}
        dims: list[int | None] = []
        for index in store.indices:
            place = places.get(index, index) if isinstance(index, tvm.ir.Var) else index
            if place not in loops and as_int(place) != 0:
                raise Refused(f"{store.buffer.name} is not kept row by row")
            dims.append(loops.get(place))
        name, dtype = f"{store.buffer.name}_row", str(store.buffer.ty.dtype)
        self._numbers[store.buffer] = tirx.decl_buffer([1], dtype, name, scope="local", layout=None)
        self._dims[store.buffer] = dims

    def _check(self, nest: Nest, inner: Sequence[Axis], groups: WorkGroups) -> None:
        """Work items do little, or there are many that read and write side by side."""
        loads = [load for load in nest.loads() if load.source not in self._numbers and load.source not in nest.buffers]
        if any(is_one_of(load.source, self._written) for load in loads):
            raise Refused(f"{nest.name} reads elements that others make")
        variables = {axis.var for axis in inner}
        accesses = [load.indices for load in loads] + [store.indices for store in nest.stores]
        lasts = [nodes_of(indices[-1], tvm.ir.Var) for indices in accesses if len(indices)]
        if _elements(inner) < _SHORT:
            return
        if _elements(self._axes) < groups.busy:
            raise Refused("a work item for each of so few long rows leaves the device idle")
        if any(variables.intersection(last) for last in lasts):
            raise Refused(f"rows of {nest.name} are long and lie one after the other")

    def _placed(self, store: Any, places: Mapping[Any, Any]) -> Any:
        """The store in the row of the work item, whose numbers are in registers."""

        def on_load(load: Any) -> Any:
            register = self._numbers.get(load.source)
            return load if register is None else _loaded(register)

        return structural_map(substitute(store, places), (tvm.ir.TensorLoad, on_load))

    def _looped(self, axes: Sequence[Axis], body: Any) -> Any:
        for axis in reversed(axes):
            own = tirx.Var(axis.var.name, axis.var.ty.dtype)
            body = tirx.For(own, _zero(axis), axis.extent, tirx.ForKind.SERIAL, substitute(body, {axis.var: own}))
        return body


def _loaded(register: Any) -> Any:
    return tirx.BufferLoad(register, [tirx.IntImm("int32", 0)])


def _zero(axis: Axis) -> Any:
    return tirx.IntImm(axis.var.ty.dtype, 0)


def _is_one(axis: Axis) -> bool:
    return as_int(axis.extent) == 1


def _elements(axes: Sequence[Axis]) -> int:
    sizes = [as_int(axis.extent) for axis in axes]
    return math.prod(SYMBOL_SIZE if size is None else size for size in sizes)
