"""Differences from the largest or the smallest of a row, which are operations by themselves.

In: a PrimFunc. Out: the same, with a call of an op of our own for such a difference, and what generators of code are to
make of it. The extreme of products is one of rounded ones. If a product and its difference were one operation, as
compilers like to make them, the product would be exact there, and the difference not at most 0: beyond 1e9 its
exponential is infinite (softmax(x * 1.01) was NaN), and beyond 1e4 it is off by more than floats are.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.tir.intrinsics import is_call, pure_op
from eqsat_layout.tir.structural import body_pass, is_one_of, mapped_body, nodes_of, primfunc_pass

_OP: Final = pure_op("difference", "a difference that is part of no other operation")
_OF_CUDA: Final = {"float32": "__fsub_rn", "float64": "__dsub_rn"}
"""By the types of what is multiplied and added in one operation."""


def keep_differences() -> Any:
    """A pass that does :func:`with_differences`, before anything looks at values."""
    return primfunc_pass("KeepDifferences", with_differences)


def with_differences(func: Any) -> Any:
    """``func`` with calls for differences from extremes that some stage of it finds."""
    extremes = _extremes(func)

    def on_difference(node: Any) -> Any:
        are_extremes = [
            isinstance(one, tvm.ir.TensorLoad) and is_one_of(one.source, extremes) for one in (node.a, node.b)
        ]
        if str(node.ty.dtype) not in _OF_CUDA or sum(are_extremes) != 1:
            return node
        return tvm.ir.Call(_OP, [node.a, node.b], ret_ty=node.ty)

    return mapped_body(func, (tirx.Sub, on_difference)) if extremes else func


def differences_for_llvm() -> Any:
    """A pass, after loops became vectors."""
    return body_pass("DifferencesForLLVM", (tvm.ir.Call, _for_llvm))


def differences_for_cuda() -> Any:
    """The same for CUDA C++."""
    return body_pass("DifferencesForCUDA", (tvm.ir.Call, _for_cuda))


def _extremes(func: Any) -> list[Any]:
    """Buffers of maxima and minima along axes, and of copies of these."""
    stores = nodes_of(func.body, tirx.BufferStore)
    found = [store.buffer for store in stores if _is_update(store)]
    copies = [store for store in stores if isinstance(store.value, tvm.ir.TensorLoad)] if found else []
    while new := [s.buffer for s in copies if is_one_of(s.value.source, found) and not is_one_of(s.buffer, found)]:
        found += new
    return found


def _is_update(store: Any) -> bool:
    """It takes one more element to the extreme of those before."""
    value = store.value
    if isinstance(value, tirx.Max | tirx.Min):
        sides = [value.a, value.b]
    elif isinstance(value, tirx.Select):
        sides = [value.true_value, value.false_value]
    else:
        return False
    return any(isinstance(one, tvm.ir.TensorLoad) and one.source.same_as(store.buffer) for one in sides)


def _for_llvm(call: Any) -> Any:
    if not is_call(call, _OP.name):
        return call
    return tirx.Sub(*(one if isinstance(one, tvm.ir.TensorLoad) else _fenced(one) for one in call.args))


def _fenced(value: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)


def _for_cuda(call: Any) -> Any:
    if not is_call(call, _OP.name):
        return call
    dtype = str(call.ty.dtype)
    return tirx.call_pure_extern(dtype, _OF_CUDA[dtype.partition("x")[0]], *call.args)
