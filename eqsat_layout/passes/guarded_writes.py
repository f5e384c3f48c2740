"""Writes at indices that are themselves in memory happen within their buffer, or not at all.

In: a module. Out: the same, whose PrimFuncs look at such an index before they write there: constants are computed by
code of the model, and what it writes elsewhere could be anything of the process.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.tir.structural import nodes_of, structural_map


def guard_writes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself is not changed."""
    functions = {name: _guarded(f) if isinstance(f, tirx.PrimFunc) else f for name, f in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _guarded(func: Any) -> Any:
    return func.with_body(structural_map(func.body, (tirx.BufferStore, _guarded_if_read)))


def _guarded_if_read(store: Any) -> Any:
    return guarded_store(store) if any(nodes_of(index, ir.TensorLoad) for index in store.indices) else store


def guarded_store(store: Any) -> Any:
    """Indices are read once: what another core writes there meanwhile is not used."""
    places = [tirx.Var(f"place{number}", index.ty.dtype) for number, index in enumerate(store.indices)]
    extents = [
        tirx.const(int(extent), str(place.ty.dtype)) if isinstance(extent, tirx.IntImm) else extent
        for place, extent in zip(places, store.buffer.ty.shape, strict=True)
    ]
    within = [tirx.And(place >= 0, place < extent) for place, extent in zip(places, extents, strict=True)]
    write = tirx.IfThenElse(reduce(tirx.And, within), tirx.BufferStore(store.buffer, store.value, places), None)
    binds = [tirx.Bind(place, index) for place, index in zip(places, store.indices, strict=True)]
    return tirx.SeqStmt([*binds, write])
