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
from tvm import relax, tirx
from tvm.relax import op

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.tir.structural import nodes_of, structural_map

PRECISIONS: Final = ("float16",)
"""Those that there are."""
_CLIP: Final = tvm.ir.Op.get("relax.clip")


def in_precision(mod: tvm.IRModule, precision: str) -> tvm.IRModule:
    """:class:`EqsatError` for a precision that is none, and for a module that has nothing to convert."""
    if precision not in PRECISIONS:
        near = did_you_mean(str(precision), PRECISIONS)
        raise EqsatError(f"precision {precision!r} is not known; {near}there is {', '.join(PRECISIONS)}")
    plain = _of_tensors(mod)
    converted = relax.transform.ToMixedPrecision(out_dtype="float32")(plain)
    if precision not in set(_dtypes(converted)) - set(_dtypes(mod)):
        raise EqsatError(f"precision {precision!r}: the module has no product of float32 to compute so")
    return converted


def _of_tensors(mod: tvm.IRModule) -> tvm.IRModule:
    """With clips between tensors in place of numbers: ToMixedPrecision takes no others."""

    def on_call(call: Any) -> Any:
        if call.op != _CLIP or not all(isinstance(bound, tirx.IntImm | tirx.FloatImm) for bound in call.args[1:]):
            return call
        x, *bounds = call.args
        low, high = (relax.const(bound.value, str(x.ty.dtype)) for bound in bounds)
        return op.maximum(op.minimum(x, high), low)

    functions = {
        var: structural_map(func, (tvm.ir.Call, on_call)) if isinstance(func, relax.Function) else func
        for var, func in mod.functions_items()
    }
    normalised: tvm.IRModule = relax.transform.Normalize()(tvm.IRModule(functions))
    return normalised


def _dtypes(mod: tvm.IRModule) -> Iterator[str]:
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            yield from (str(var.ty.dtype) for var in nodes_of(func, tvm.ir.Var) if _is_tensor(var))


def _is_tensor(var: Any) -> bool:
    return isinstance(getattr(var, "ty", None), relax.TensorType)
