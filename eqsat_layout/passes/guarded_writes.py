"""Writes at indices that come from memory happen within their buffer, or not at all.

In: a module. Out: the same, whose PrimFuncs look at such an index before they write there: what a model writes
elsewhere could be anything of the process, its code included, and a model's constants are indices of its own choice.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import tvm
from tvm import ir, s_tir, tirx

from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.extents import unravelled
from eqsat_layout.tir.structural import (
    changed_block,
    mapped_body,
    nodes_of,
    primfunc_pass,
    structural_map_outermost,
    walk,
    with_primfuncs,
)


def guard_writes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself is not changed."""
    return with_primfuncs(mod, lambda _, func: _guarded(func))


def _guarded(func: Any) -> Any:
    read = read_variables(func.body)

    def guarded(store: Any) -> Any:
        return guarded_store(store) if any(is_read(index, read) for index in store.indices) else store

    if not any(is_read(index, read) for store in nodes_of(func.body, tirx.BufferStore) for index in store.indices):
        return func
    return mapped_body(func, (tirx.BufferStore, guarded))


def skip_empty_tensors() -> Any:
    """A pass, for kernels that TVM writes out itself: its running sums store the first of an axis of no elements."""
    return primfunc_pass("SkipEmptyTensors", _without_empty_stores)


def _without_empty_stores(func: Any) -> Any:
    if not any(_open_sizes(param) for param in func.params if isinstance(param.ty, tirx.BufferType)):
        return func
    return mapped_body(func, (s_tir.SBlock, _guarded_stores))


def _guarded_stores(block: Any) -> Any:
    """Blocks that have axes store along these."""
    if block.iter_vars:
        return block

    def guarded(store: Any) -> Any:
        sizes = _open_sizes(store.buffer)
        return tirx.IfThenElse(reduce(tirx.And, [size > 0 for size in sizes]), store, None) if sizes else store

    body = structural_map_outermost(block.body, (s_tir.SBlockRealize, lambda inner: inner), (tirx.BufferStore, guarded))
    return block if body.same_as(block.body) else changed_block(block, body=body)


def _open_sizes(buffer: Any) -> list[Any]:
    """Those that may be 0."""
    return [extent for extent in buffer.ty.shape if not isinstance(extent, tirx.IntImm) or int(extent) == 0]


def read_variables(body: Any) -> set[Any]:
    """Variables whose values, or bounds, come from memory."""
    sources: list[tuple[Any, list[Any]]] = []

    def block(realize: Any) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            bounds = [] if axis.dom is None else [axis.dom.min, axis.dom.extent]
            sources.append((axis.var, [value, *bounds]))

    walk(
        body,
        (tirx.For, lambda loop: sources.append((loop.loop_var, [loop.min, loop.extent]))),
        (tirx.Bind, lambda bind: sources.append((bind.var, [bind.value]))),
        (tirx.Let, lambda let: sources.append((let.var, [let.value]))),
        (s_tir.SBlockRealize, block),
    )
    found: set[Any] = set()
    while True:  # a variable may be made of another one, which the walk sees later
        more = {var for var, parts in sources if var not in found and any(is_read(part, found) for part in parts)}
        if not more:
            return found
        found |= more


def is_read(value: Any, read: set[Any]) -> bool:
    """Whether it comes from memory, by itself or by one of the variables ``read``."""
    return bool(nodes_of(value, ir.TensorLoad)) or any(var in read for var in (nodes_of(value, ir.Var) if read else ()))


def guarded_store(store: Any) -> Any:
    """Indices are read once: what another core writes there meanwhile is not used."""
    flat = _flat_index(store)
    if flat is not None:  # one number is looked at, and not taken apart
        place = tirx.Var("place", flat.ty.dtype)
        extents = [int(extent) for extent in store.buffer.ty.shape]
        write = tirx.BufferStore(store.buffer, store.value, unravelled(place, extents))
        within = tirx.And(place >= 0, place < tirx.const(math.prod(extents), str(place.ty.dtype)))
        return tirx.SeqStmt([tirx.Bind(place, flat), tirx.IfThenElse(within, write, None)])
    places = [tirx.Var(f"place{number}", index.ty.dtype) for number, index in enumerate(store.indices)]
    extents = [
        tirx.const(int(extent), str(place.ty.dtype)) if isinstance(extent, tirx.IntImm) else extent
        for place, extent in zip(places, store.buffer.ty.shape, strict=True)
    ]
    within = [tirx.And(place >= 0, place < extent) for place, extent in zip(places, extents, strict=True)]
    write = tirx.IfThenElse(reduce(tirx.And, within), tirx.BufferStore(store.buffer, store.value, places), None)
    binds = [tirx.Bind(place, index) for place, index in zip(places, store.indices, strict=True)]
    return tirx.SeqStmt([*binds, write])


def _flat_index(store: Any) -> Any:
    """The number of which the indices are the digits, if they are: it is within the buffer where all of these are."""
    last, extents = store.indices[-1], list(store.buffer.ty.shape)
    if not isinstance(last, tirx.FloorMod) or not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    dtypes = {str(index.ty.dtype) for index in store.indices}
    if len(dtypes) > 1 or math.prod(map(int, extents)) > int(tirx.max_value(*dtypes)):
        return None  # no such number says how many elements there are
    analyzer = analyzer_of(())
    flat = store.indices[0]
    for index, extent in zip(store.indices[1:], map(int, extents[1:]), strict=True):
        bounds = analyzer.const_int_bound(index)
        if bounds.min_value < 0 or bounds.max_value >= extent:
            return None
        flat = flat * tirx.const(extent, *dtypes) + index
    return last.a if analyzer.can_prove_equal(flat, last.a) else None
