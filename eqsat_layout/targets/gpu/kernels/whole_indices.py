"""Indices that are floats, as TIR may have them: C takes whole numbers only.

In: a PrimFunc. Out: the same, such indices cut to whole numbers as the CPU does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx

from eqsat_layout.tir.structural import mapped_body, primfunc_pass


def whole_indices() -> Any:
    """A pass."""

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(load.source, _whole(load.indices)) if _are_floats(load.indices) else load

    def on_store(store: Any) -> Any:
        return (
            tirx.BufferStore(store.buffer, store.value, _whole(store.indices)) if _are_floats(store.indices) else store
        )

    def changed(func: Any) -> Any:
        return mapped_body(func, (ir.TensorLoad, on_load), (tirx.BufferStore, on_store))

    return primfunc_pass("WholeIndices", changed)


def _are_floats(indices: Sequence[Any]) -> bool:
    return any("float" in str(index.ty.dtype) for index in indices)


def _whole(indices: Sequence[Any]) -> list[Any]:
    return [tirx.Cast("int32", index) if "float" in str(index.ty.dtype) else index for index in indices]
