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
    return primfunc_pass(
        "UnrollShortStores", lambda func: func.with_body(structural_map(func.body, (tirx.For, _unrolled)))
    )


def _unrolled(loop: Any) -> Any:
    extent = as_int(loop.extent)
    if extent is None or extent >= _SHORT or loop.kind != tirx.ForKind.SERIAL or nodes_of(loop.body, tirx.For):
        return loop
    if not any(str(store.buffer.dtype) == "bfloat16" for store in nodes_of(loop.body, tirx.BufferStore)):
        return loop
    return changed_loop(loop, kind=tirx.ForKind.UNROLLED)
