"""Updates at places that are read from memory, in loops that TVM marks parallel: in order.

In: PrimFuncs without blocks. Out: the same, such loops serial. Two iterations may update one element, as those of
``index_put`` with equal indices do: what one of two threads added was lost.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.tir.structural import changed_loop, let_values, mapped_body, nodes_of, primfunc_pass, substitute


def order_updates() -> Any:
    """The pass."""
    return primfunc_pass("OrderUpdates", _in_order)


def _in_order(func: Any) -> Any:
    def on_loop(loop: Any) -> Any:
        if loop.kind == tirx.ForKind.PARALLEL and any(map(may_meet, nodes_of(loop.body, tirx.BufferStore))):
            return changed_loop(loop, kind=tirx.ForKind.SERIAL)
        return loop

    values = let_values(func.body)

    def may_meet(store: Any) -> bool:
        is_update = any(load.source.same_as(store.buffer) for load in _loads(substitute(store.value, values)))
        return is_update and any(_loads(substitute(index, values)) for index in store.indices)

    return mapped_body(func, (tirx.For, on_loop))


def _loads(value: Any) -> list[Any]:
    return nodes_of(value, tvm.ir.TensorLoad)
