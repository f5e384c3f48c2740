"""Kernels that divide by a size which is an expression, as ``n // 2 - 1``, take it as a symbol of their own.

In: a PrimFunc. Out: the same, in which such an extent of an operand is called by a new name, which the operand gives.
Of a symbol TVM knows that it is not below 0, and what is divided by it after a product with it is simplified: a reshape
that cuts other axes has no division left. Otherwise it writes each one out for all signs, one within the other, and its
code generator needs minutes for them.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx

from eqsat_layout.tir.structural import nodes_of, structural_map_outermost

_SUMS: Final = (tirx.Add, tirx.Sub, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min)
"""What may be below 0, as far as TVM says. Products of sizes are not, and are known to be multiples of each."""

_EXPRESSIONS: Final = (*_SUMS, tirx.Mul)


def with_own_sizes(func: Any) -> Any:
    """``func`` itself where it divides by no such size."""
    divisors = {
        tvm_ffi.StructuralKey(one.b)
        for one in nodes_of(func.body, tirx.FloorDiv, tirx.FloorMod)
        if isinstance(one.b, _EXPRESSIONS)
    }
    extents = [extent for param in func.params for extent in getattr(param.ty, "shape", ())]
    sums = [one for one in extents if isinstance(one, _EXPRESSIONS) and nodes_of(one, *_SUMS)]
    keys = dict.fromkeys(map(tvm_ffi.StructuralKey, sums))
    if divisors.isdisjoint(keys):
        return func
    symbols = {key: tirx.Var(f"size{at}", key.key.ty) for at, key in enumerate(keys)}
    return structural_map_outermost(func, (_EXPRESSIONS, lambda node: symbols.get(tvm_ffi.StructuralKey(node))))
