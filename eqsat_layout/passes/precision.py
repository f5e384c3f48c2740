"""A float32 module computed in half precision.

In: a module in float32, plain for inference. Out: the same with its convolutions and matrix products, and what follows
them elementwise, in the precision asked for: operands and what is kept in memory are halves, products are added up in
float32, and what is sensitive (softmax, norms, sums) stays in float32. Inputs and results keep their types. TVM's
ToMixedPrecision decides what goes with what.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.tir.structural import nodes_of

PRECISIONS: Final = ("float16",)
"""Those that there are."""


def in_precision(mod: tvm.IRModule, precision: str) -> tvm.IRModule:
    """:class:`EqsatError` for a precision that is none, and for a module that has nothing to convert."""
    if precision not in PRECISIONS:
        near = did_you_mean(str(precision), PRECISIONS)
        raise EqsatError(f"precision {precision!r} is not known; {near}there is {', '.join(PRECISIONS)}")
    converted = relax.transform.ToMixedPrecision(out_dtype="float32")(mod)
    if precision not in set(_dtypes(converted)) - set(_dtypes(mod)):
        raise EqsatError(f"precision {precision!r}: the module has no product of float32 to compute so")
    return converted


def _dtypes(mod: tvm.IRModule) -> Iterator[str]:
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            yield from (str(var.ty.dtype) for var in nodes_of(func, tvm.ir.Var) if _is_tensor(var))


def _is_tensor(var: Any) -> bool:
    return isinstance(getattr(var, "ty", None), relax.TensorType)
