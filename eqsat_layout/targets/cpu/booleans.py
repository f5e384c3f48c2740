"""Comparisons of booleans as comparisons of bytes.

In: PrimFuncs. Out: the same, for TVM's code generator for LLVM, which takes booleans for floats there.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.tir.structural import primfunc_pass, structural_map

_COMPARISONS: Final = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_BYTE: Final = "uint8"


def compare_booleans() -> Any:
    """A pass."""

    def compared(node: Any) -> Any:
        kind, _, lanes = str(node.a.ty.dtype).partition("x")
        if kind != "bool":
            return node
        byte = f"{_BYTE}x{lanes}" if lanes else _BYTE
        return type(node)(node.a.astype(byte), node.b.astype(byte))

    return primfunc_pass(
        "CompareBooleans", lambda func: func.with_body(structural_map(func.body, (_COMPARISONS, compared)))
    )
