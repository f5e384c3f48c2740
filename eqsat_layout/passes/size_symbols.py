"""A symbol in place of a size that is an expression, in kernels that divide by it.

In: a PrimFunc with an extent such as ``n // 2 - 1``. Out: the same, with a new symbol for the extent, whose value the
operand's shape gives. TVM knows that a symbol is not negative, so it simplifies a product that is divided by it: a
reshape that splits other axes needs no division. For an expression it writes nested divisions for every sign, which
its code generator takes minutes for.
"""

from __future__ import annotations

from typing import Any, Final

import tvm_ffi
from tvm import tirx

from eqsat_layout.tir.structural import nodes_of, structural_map_outermost

_SUMS: Final = (tirx.Add, tirx.Sub, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min)
"""What may be below 0, as far as TVM says. Products of sizes are not, and are known to be multiples of each."""

_EXPRESSIONS: Final = (*_SUMS, tirx.Mul)


def with_size_symbols(func: Any) -> Any:
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
