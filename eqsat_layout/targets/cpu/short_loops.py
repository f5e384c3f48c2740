"""Unrolls short loops that store bfloat16.

In: a PrimFunc of loops. Out: the same, where innermost loops of fewer steps than ``_SHORT`` that store bfloat16 are
to be unrolled. LLVM takes the whole of such a loop as vectors under a mask, and LLVM 22 stores the last value of
``8 + 1`` steps, where it is alone in its vector, as four bytes: two of them lie behind the result.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.structural import changed_loop, nodes_of, primfunc_pass, structural_map

# LLVM's -vectorizer-min-trip-count: from there on it leaves the last steps to a scalar loop
_SHORT: Final = 16


def unroll_short_bfloat16_stores() -> Any:
    """A pass."""
    return primfunc_pass("UnrollShortStores", lambda func: func.with_body(_changed(func.body)))


def _changed(body: Any) -> Any:
    """``body`` itself where nothing stores bfloat16, as in most kernels: it is looked through once only."""
    return structural_map(body, (tirx.For, _unrolled)) if _stores_bfloat16(body) else body


def _unrolled(loop: Any) -> Any:
    extent = as_int(loop.extent)
    if extent is None or extent >= _SHORT or loop.kind != tirx.ForKind.SERIAL or nodes_of(loop.body, tirx.For):
        return loop
    return changed_loop(loop, kind=tirx.ForKind.UNROLLED) if _stores_bfloat16(loop.body) else loop


def _stores_bfloat16(body: Any) -> bool:
    return any(str(store.buffer.dtype) == "bfloat16" for store in nodes_of(body, tirx.BufferStore))
