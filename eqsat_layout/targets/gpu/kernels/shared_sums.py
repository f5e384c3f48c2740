"""Reductions with few results: the work items of a group share one, each adding up a part of what it is made of.

In: a nest, the reduction in it, and its tile. Out: a statement that launches a group for each tile; partial results
meet in shared memory. The order of a sum is another one than stated, so only where that may be. Refused for what is no
sum, product or bound from its neutral element on, and where there are results enough for all work items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.work_items import ItemTile, KernelParts, sequence
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import substitute

_GROUP: Final = 64
"""Work items that share a result: meeting takes a step for each power of two."""
_FEW: Final = 1024
"""Work items that keep a device busy (assumed, as for tiles)."""
_SHORTEST: Final = 4 * _GROUP
"""Steps below which meeting takes longer than it saves (assumed)."""

_KINDS: Final = {kind.__name__: kind for kind in (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)}
_HIDDEN: Final = "eqsat_layout."


def shared_sum_of(nest: Nest, reduction: Nest | None, tile: ItemTile) -> Any:
    """See the module. The tile has lanes at most."""
    inner = nest if nest.reduced else reduction
    if inner is None or len(inner.stores) != 1:
        raise Refused("it is no single reduction")
    steps = math.prod(as_int(axis.extent) or 0 for axis in inner.reduced)
    elements = math.prod(as_int(axis.extent) or _FEW for axis in nest.spatial)
    if steps < _SHORTEST or elements >= _FEW:
        raise Refused("its results keep all work items busy, or are soon made")
    return _SharedSum(nest, reduction, ItemTile(tile.lanes), combining(inner), steps).statement()


def combining(reduction: Nest) -> Callable[[Any, Any], Any]:
    """How two partial results become one; refused where that is not known, or each would begin with something."""
    (store,), (init,) = reduction.stores, reduction.inits
    value = store.value
    name = type(value).__name__
    parts = [value.a, value.b] if name in _KINDS else list(getattr(value, "args", ()))
    if name not in _KINDS:
        name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix(_HIDDEN)
    own = [isinstance(part, tvm.ir.TensorLoad) and part.source.same_as(store.buffer) for part in parts]
    if name not in _KINDS or own != [True, False] or not _is_neutral(name, init.value):
        raise Refused(f"{reduction.name} is no sum, product or bound")
    return _KINDS[name]  # type: ignore[no-any-return]


def _is_neutral(name: str, value: Any) -> bool:
    number = getattr(value, "value", None)
    if number is None:
        return False
    least, most = (float(bound.value) for bound in (tirx.min_value(value.ty), tirx.max_value(value.ty)))
    neutral = {"Add": (0.0,), "Mul": (1.0,), "Max": (least, -math.inf), "Min": (most, math.inf)}
    return float(number) in neutral[name]


class _SharedSum(KernelParts):
    """``steps`` of the reduction are dealt out to the work items of a group in turn."""

    def __init__(
        self, nest: Nest, reduction: Nest | None, tile: ItemTile, combined: Callable[[Any, Any], Any], steps: int
    ) -> None:
        super().__init__(nest, reduction, tile)
        self._combined, self._steps = combined, steps

    def statement(self) -> Any:
        """A group for each tile."""
        body = self._with_places(self._work(), self._group.var)
        body = tirx.AttrStmt(self._item, "thread_extent", self._int(_GROUP), body)
        return tirx.AttrStmt(self._group, "thread_extent", self._total, body)

    def _summed(self, reduction: Nest, at: Any) -> Any:
        ((start,), (store,)) = reduction.inits, reduction.stores
        sums = self._registers(store.buffer)
        own = {store.buffer: sums}
        width = int(sums.ty.shape[0])
        shared = tirx.decl_buffer([self._int(_GROUP * width)], sums.ty.dtype, "parts", scope="shared", layout=None)
        begin = self._kept(sums, self._placed(start.value, at, own))
        loop = self._dealt(reduction, self._kept(sums, self._placed(store.value, at, own)))
        put = [self._at_shared(shared, self._item.var, e, tirx.BufferLoad(sums, [self._int(e)])) for e in range(width)]
        meet: list[Any] = []
        apart = _GROUP // 2
        while apart:
            joined = [self._joined(shared, width, e, apart) for e in range(width)]
            meet += [_barrier(), tirx.IfThenElse(self._item.var < apart, sequence(joined), None)]
            apart //= 2
        got = [tirx.BufferStore(sums, tirx.BufferLoad(shared, [self._int(e)]), [self._int(e)]) for e in range(width)]
        ends = self._stored(self._final_stores(own), own)
        first = tirx.IfThenElse(tirx.EQ(self._item.var, self._int(0)), sequence([*got, ends]), None)
        allocated = [tirx.AllocBuffer(shared), tirx.AllocBuffer(sums)]
        return sequence([*allocated, begin, loop, *put, *meet, first])

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

    def _joined(self, shared: Any, width: int, element: int, apart: int) -> Any:
        mine, other = (
            tirx.BufferLoad(shared, [(self._item.var + far) * width + element]) for far in (self._int(0), apart)
        )
        return self._at_shared(shared, self._item.var, element, self._combined(mine, other))

    def _at_shared(self, shared: Any, item: Any, element: int, value: Any) -> Any:
        width = int(shared.ty.shape[0]) // _GROUP
        return tirx.BufferStore(shared, value, [item * width + element])


def _barrier() -> Any:
    return tirx.Evaluate(tirx.op.tvm_storage_sync("shared"))
