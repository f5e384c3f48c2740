"""Reductions with few results: the work items of a group share one, each adding up a part of what it is made of.

In: a nest, the reduction in it, and its tile. Out: a statement that launches a group for each tile; partial results
meet in shared memory. The order of a sum is another one than stated, so only where that may be, as it may of integers.
Refused for what is no sum, product or bound from its neutral element on, nor the place of one, and where there are
results enough for all work items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.shared_loops import barrier
from eqsat_layout.targets.gpu.kernels.work_items import ItemTile, KernelParts
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.index_of_extreme import better, kind_of_extreme
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import nodes_of, substitute

_GROUP: Final = 64
"""Work items that share a result: meeting takes a step for each power of two."""
_SHORTEST: Final = _GROUP
"""Steps below which meeting takes longer than it saves (assumed)."""

_KINDS: Final = {kind.__name__: kind for kind in (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)}
_HIDDEN: Final = "eqsat_layout."


def shared_sum_of(nest: Nest, reduction: Nest | None, tile: ItemTile, busy: int) -> Any:
    """See the module. The tile has lanes at most. ``busy``: work items that keep the device so."""
    inner = nest if nest.reduced else reduction
    if inner is None:
        raise Refused("it is no reduction")
    steps = math.prod(as_int(axis.extent) or 0 for axis in inner.reduced)
    elements = math.prod(as_int(axis.extent) or busy for axis in nest.spatial)
    if steps < _SHORTEST or elements >= busy:
        raise Refused("its results keep all work items busy, or are soon made")
    return _SharedSum(nest, reduction, ItemTile(tile.lanes), combining(inner), steps).statement()


def has_free_order(nest: Nest, reduction: Nest | None) -> bool:
    """Integers give the same sum in any order."""
    inner = nest if nest.reduced else reduction
    return inner is not None and all("int" in str(buffer.ty.dtype) for buffer in inner.buffers)


Combined: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
"""From the parts of two results to those of one."""


def combining(reduction: Nest) -> Combined:
    """How two partial results become one; refused where that is not known, or each would begin with something."""
    if len(reduction.stores) == 2 and (kind := kind_of_extreme(*reduction.stores)) is not None:
        return partial(better, kind)
    kinds = [_kind_of(reduction, store, init) for store, init in zip(reduction.stores, reduction.inits, strict=True)]
    return lambda mine, other: [kind(a, b) for kind, a, b in zip(kinds, mine, other, strict=True)]


def _kind_of(reduction: Nest, store: Any, init: Any) -> Any:
    """Of one result by itself; refused where it is made of the others."""
    value = store.value
    others = [buffer for buffer in reduction.buffers if not buffer.same_as(store.buffer)]
    if any(load.source.same_as(other) for load in nodes_of(value, tvm.ir.TensorLoad) for other in others):
        raise Refused(f"{reduction.name} has several results that are made of each other")
    name = type(value).__name__
    parts = [value.a, value.b] if name in _KINDS else list(getattr(value, "args", ()))
    if name not in _KINDS:
        name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix(_HIDDEN)
    own = [isinstance(part, tvm.ir.TensorLoad) and part.source.same_as(store.buffer) for part in parts]
    if name not in _KINDS or own != [True, False] or not _is_neutral(name, init.value):
        raise Refused(f"{reduction.name} is no sum, product or bound")
    return _KINDS[name]


def _is_neutral(name: str, value: Any) -> bool:
    number = getattr(value, "value", None)
    if number is None:
        return False
    least, most = (float(bound.value) for bound in (tirx.min_value(value.ty), tirx.max_value(value.ty)))
    neutral = {"Add": (0.0,), "Mul": (1.0,), "Max": (least, -math.inf), "Min": (most, math.inf)}
    return float(number) in neutral[name]


class _SharedSum(KernelParts):
    """``steps`` of the reduction are dealt out to the work items of a group in turn."""

    def __init__(self, nest: Nest, reduction: Nest | None, tile: ItemTile, combined: Combined, steps: int) -> None:
        super().__init__(nest, reduction, tile)
        self._combined, self._steps = combined, steps

    def statement(self) -> Any:
        """A group for each tile."""
        body = self._with_places(self._work(), self._group.var)
        body = tirx.AttrStmt(self._item, "thread_extent", self._int(_GROUP), body)
        return tirx.AttrStmt(self._group, "thread_extent", self._total, body)

    def _work(self) -> Any:
        reduction = self._reduction
        assert reduction is not None
        at = self._places if reduction is self._nest else self._places_in(reduction)
        sums, fresh = ([self._registers(buffer) for buffer in reduction.buffers] for _ in range(2))
        own = dict(zip(reduction.buffers, sums, strict=True))
        width = int(sums[0].ty.shape[0])
        parts = [self._parts_of(one, width) for one in sums]
        begin = [self._kept(own[one.buffer], self._placed(one.value, at, own)) for one in reduction.inits]
        step = self._together(sums, fresh, [self._placed(store.value, at, own) for store in reduction.stores])
        put = [
            self._at_shared(shared, self._item.var, e, tirx.BufferLoad(one, [self._int(e)]))
            for shared, one in zip(parts, sums, strict=True)
            for e in range(width)
        ]
        meet: list[Any] = []
        apart = _GROUP // 2
        while apart:
            joined = [one for e in range(width) for one in self._joined(parts, fresh, width, e, apart)]
            meet += [barrier(), tirx.IfThenElse(self._item.var < apart, sequence(joined), None)]
            apart //= 2
        got = [
            tirx.BufferStore(one, tirx.BufferLoad(shared, [self._int(e)]), [self._int(e)])
            for shared, one in zip(parts, sums, strict=True)
            for e in range(width)
        ]
        ends = self._stored(self._final_stores(own), own)
        first = tirx.IfThenElse(tirx.EQ(self._item.var, self._int(0)), sequence([*got, ends]), None)
        allocated = list(map(tirx.AllocBuffer, [*parts, *sums, *(fresh if fresh[1:] else [])]))
        return sequence([*allocated, *begin, self._dealt(reduction, step), *put, *meet, first])

    def _parts_of(self, sums: Any, width: int) -> Any:
        """Shared memory for those of all work items."""
        name = f"{sums.name}_parts"
        return tirx.decl_buffer([self._int(_GROUP * width)], sums.ty.dtype, name, scope="shared", layout=None)

    def _together(self, sums: Sequence[Any], fresh: Sequence[Any], values: Sequence[Any]) -> Any:
        """``values`` into ``sums``; of several all are worked out before any is kept."""
        if len(values) == 1:
            return self._kept(sums[0], values[0])
        worked_out = [self._kept(one, value) for one, value in zip(fresh, values, strict=True)]
        return sequence([*worked_out, *(self._kept(a, self._loaded(b)) for a, b in zip(sums, fresh, strict=True))])

    def _dealt(self, reduction: Nest, update: Any) -> Any:
        """Neighbours take neighbouring steps, which lie together in memory."""
        turns = -(-self._steps // _GROUP)
        turn = tirx.Var("turn", self._dtype)
        flat: Any = turn * _GROUP + self._item.var
        values: dict[Any, Any] = {}
        left = flat
        for number, axis in enumerate(reversed(reduction.reduced)):
            is_outermost = number == len(reduction.reduced) - 1
            values[axis.var] = left if is_outermost else tirx.floormod(left, axis.extent)
            left = tirx.floordiv(left, axis.extent)
        bound = [(tirx.Var(f"{var.name}_at", var.ty.dtype), var, value) for var, value in values.items()]
        body = substitute(update, {var: name for name, var, _ in bound})
        body = sequence([*(tirx.Bind(name, value) for name, _, value in bound), body])
        if self._steps % _GROUP:
            body = tirx.IfThenElse(flat < self._steps, body, None)
        return tirx.For(turn, self._int(0), self._int(turns), tirx.ForKind.SERIAL, body)

    def _joined(self, parts: Sequence[Any], fresh: Sequence[Any], width: int, element: int, apart: int) -> list[Any]:
        mine, other = (
            [tirx.BufferLoad(shared, [(self._item.var + far) * width + element]) for shared in parts]
            for far in (self._int(0), self._int(apart))
        )
        values = list(self._combined(mine, other))
        if len(values) == 1:
            return [self._at_shared(parts[0], self._item.var, element, values[0])]
        at = [self._int(element)]
        worked_out = [tirx.BufferStore(one, value, at) for one, value in zip(fresh, values, strict=True)]
        kept = (tirx.BufferLoad(one, at) for one in fresh)
        stored = [self._at_shared(one, self._item.var, element, value) for one, value in zip(parts, kept, strict=True)]
        return [*worked_out, *stored]

    def _at_shared(self, shared: Any, item: Any, element: int, value: Any) -> Any:
        width = int(shared.ty.shape[0]) // _GROUP
        return tirx.BufferStore(shared, value, [item * width + element])
