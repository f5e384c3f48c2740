"""Work items that own elements of what is written where loops that have an order say which element comes next.

In: loops that run at once and what is left of a statement for each of them: it goes through updates one by one and
stores each at a place that is read from memory, as a scatter does. Out: more work items, one for each element that may
be written. All of them go through the updates in order, and each does those of its own element: as exact as one work
item, and none waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.independent_loops import (
    IndependentLoops,
    analyzer_of_loops,
    does_more_than_store,
)
from eqsat_layout.targets.gpu.kernels.work_groups import USUAL
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import let_values, nodes_of, structural_map, substitute

_MOST: Final = 1 << 18
"""Work items that go through all updates in less time than one does them (assumed)."""


def owned(part: IndependentLoops) -> IndependentLoops:
    """Refused for what writes several tensors, reads elements of others' or is fast as it is."""
    body, stores = part.body, nodes_of(part.body, tirx.BufferStore)
    if not stores or any(not store.buffer.same_as(stores[0].buffer) for store in stores):
        raise Refused("it writes several tensors")
    if does_more_than_store(body) or nodes_of(body, tirx.AllocBuffer, tirx.While):
        raise Refused("it has memory of its own")
    if not nodes_of(body, tirx.For):
        raise Refused("it has no updates, but one")
    buffer, own = stores[0].buffer, [loop.loop_var for loop in part.loops]
    places = _Places(part)
    axes = [
        axis
        for axis, _ in enumerate(buffer.ty.shape)
        if not all(any(places.of(store)[axis].same_as(var) for var in own) for store in stores)
    ]
    extents = [buffer.ty.shape[axis] for axis in axes]
    before, more = (math.prod(as_int(one) or SYMBOL_SIZE for one in some) for some in (_extents(part.loops), extents))
    if before >= USUAL.busy or not more > 1 or before * more > _MOST:
        raise Refused("it has work items enough, or would have too many")
    loops = [
        tirx.For(tirx.Var(f"own{axis}", "int64"), tirx.IntImm("int64", 0), extent.astype("int64"), _SERIAL, body)
        for axis, extent in zip(axes, extents, strict=True)
    ]
    mine = {axis: loop.loop_var for axis, loop in zip(axes, loops, strict=True)}

    def if_owned(store: Any) -> Any:
        indices, at = list(store.indices), places.of(store)
        element = [mine[axis].astype(str(i.ty.dtype)) if axis in mine else i for axis, i in enumerate(indices)]

        def on_load(load: Any) -> Any:
            if not load.source.same_as(buffer):
                return load
            if not all(map(tvm_ffi.structural_equal, places.of(load), at)):
                raise Refused("it reads elements that others own")
            return tirx.BufferLoad(buffer, element)

        value = structural_map(store.value, (tvm.ir.TensorLoad, on_load))
        is_own = [tirx.EQ(indices[axis], element[axis]) for axis in mine]
        condition = is_own[0]
        for one in is_own[1:]:
            condition = tirx.And(condition, one)
        return tirx.IfThenElse(condition, tirx.BufferStore(buffer, value, element), None)

    made = structural_map(body, (tirx.BufferStore, if_owned))
    in_values = sum(_loads(store.value, buffer) for store in stores)
    if in_values != _loads(body, buffer):
        raise Refused("what it does hangs on elements that others own")
    return IndependentLoops((*loops, *part.loops), made)


_SERIAL: Final = tirx.ForKind.SERIAL


def _extents(loops: Sequence[Any]) -> list[Any]:
    return [loop.extent for loop in loops]


def _loads(node: Any, buffer: Any) -> int:
    return sum(load.source.same_as(buffer) for load in nodes_of(node, tvm.ir.TensorLoad))


class _Places:
    """Where stores and loads are: names as what they stand for, without bounds that hold for what is an element."""

    def __init__(self, part: IndependentLoops) -> None:
        self._bound = let_values(part.body)
        self._analyzer = analyzer_of_loops([*part.loops, *nodes_of(part.body, tirx.For)])

    def of(self, access: Any) -> list[Any]:
        """Of a store or a load."""
        buffer = access.source if isinstance(access, tvm.ir.TensorLoad) else access.buffer
        return list(map(self._place, access.indices, buffer.ty.shape))

    def _place(self, index: Any, extent: Any) -> Any:
        index = substitute(index, self._bound)
        ends = {tirx.Max: 0, tirx.Min: (as_int(extent) or 0) - 1}
        while type(index) in ends and as_int(index.b) == ends[type(index)]:
            index = index.a
        return self._analyzer.simplify(index)
