"""Differences from the largest or the smallest of a row, and of two products, which are operations by themselves.

In: a PrimFunc. Out: the same, with calls of ops of our own for such differences and sums, and what generators of code
are to make of these. The extreme of products is one of rounded ones. If a product and its difference were one
operation, as compilers like to make them, the product would be exact there, and the difference not at most 0: beyond
1e9 its exponential is infinite (softmax(x * 1.01) was NaN), and beyond 1e4 it is off by more than floats are. Of two
products only one would be exact: x * c - max(x) * c and x * x - y * y were not 0 where they are to be. Sums of products
with what was added up before stay as they are.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.target import codegen

from eqsat_layout.tir.intrinsics import is_choice, pure_op
from eqsat_layout.tir.structural import body_pass, is_one_of, mapped_body, nodes_of, primfunc_pass

_OPS: Final = {
    kind: pure_op(name, "a difference or sum that is part of no other operation")
    for kind, name in ((tirx.Sub, "difference"), (tirx.Add, "sum"))
}
_KINDS: Final = {str(op.name): kind for kind, op in _OPS.items()}
_OF_CUDA: Final = {
    (tirx.Sub, "float32"): "__fsub_rn",
    (tirx.Sub, "float64"): "__dsub_rn",
    (tirx.Add, "float32"): "__fadd_rn",
    (tirx.Add, "float64"): "__dadd_rn",
}
"""By the types of what is multiplied and added in one operation."""
_OF_OPENCL: Final = re.compile(r"\b(eqsat_layout_(difference|sum)_(float\d*))\b")
_SIGNS: Final = {"difference": "-", "sum": "+"}
_HALF: Final = 0.5
_MULTIPLY_ADD: Final = frozenset({"fma", "fma4", "fp-armv8"})
"""Features of CPUs that do so."""


def keep_differences() -> Any:
    """A pass that does :func:`with_differences`, before anything looks at values."""
    return primfunc_pass("KeepDifferences", with_differences)


def with_differences(func: Any) -> Any:
    """``func`` with calls for differences of products from extremes that some stage of it finds, and from products."""
    extremes = _extremes(func)

    def on_difference(node: Any) -> Any:
        sides = node.a, node.b
        is_kept = all(map(_is_product, sides)) or any(
            _may_be_product(one) and _is_read_of(other, extremes) for one, other in (sides, reversed(sides))
        )
        if not is_kept or (type(node), str(node.ty.dtype)) not in _OF_CUDA:
            return node
        return tvm.ir.Call(_OPS[type(node)], list(sides), ret_ty=node.ty)

    return mapped_body(func, (tuple(_OPS), on_difference))


def differences_for_llvm() -> Any:
    """A pass, after loops became vectors."""
    return primfunc_pass("DifferencesForLLVM", _for_llvm)


def differences_for_cuda() -> Any:
    """The same for CUDA C++."""
    return body_pass("DifferencesForCUDA", (tvm.ir.Call, _for_cuda))


def differences_for_opencl() -> Any:
    """The same for OpenCL C, which has no such function: of :func:`opencl_functions`, and doubles as they are."""
    return body_pass("DifferencesForOpenCL", (tvm.ir.Call, _for_opencl))


def opencl_functions(source: str) -> str:
    """The functions of ours that ``source`` calls. Kernels that are built together have them once."""
    return "".join(
        f"#ifndef {name}_\n#define {name}_\n{dtype} {name}({dtype} a, {dtype} b) {{\n"
        f"#pragma OPENCL FP_CONTRACT OFF\n  return a {_SIGNS[what]} b;\n}}\n#endif\n"
        for name, what, dtype in sorted(set(_OF_OPENCL.findall(source)))
    )


def _extremes(func: Any) -> list[Any]:
    """Buffers of maxima and minima along axes, and of copies of these."""
    stores = nodes_of(func.body, tirx.BufferStore)
    found = [store.buffer for store in stores if _is_update(store)]
    copies = [store for store in stores if isinstance(store.value, tvm.ir.TensorLoad)] if found else []
    while new := [s.buffer for s in copies if is_one_of(s.value.source, found) and not is_one_of(s.buffer, found)]:
        found += new
    return found


def _is_read_of(value: Any, buffers: list[Any]) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and is_one_of(value.source, buffers)


def _is_product(value: Any) -> bool:
    """Of what is read: not of a function that is written out."""
    return _is_rounded(value) and bool(nodes_of(value, tvm.ir.TensorLoad))


def _is_rounded(value: Any) -> bool:
    """A product, but with a power of two: that is exact anyway."""
    return isinstance(value, tirx.Mul) and not any(
        isinstance(one, tirx.FloatImm) and abs(math.frexp(one.value)[0]) == _HALF for one in (value.a, value.b)
    )


def _may_be_product(value: Any) -> bool:
    """Itself, by its name, or one of what is chosen from."""
    if isinstance(value, tirx.Select):
        return _may_be_product(value.true_value) or _may_be_product(value.false_value)
    if is_choice(value):
        return any(map(_may_be_product, value.args[1:]))
    if isinstance(value, tirx.Let):
        return _may_be_product(value.body)
    return _is_rounded(value) or isinstance(value, tvm.ir.Var)


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


def _for_llvm(func: Any) -> Any:
    """LLVM makes one operation of a product and a sum where the CPU has it."""
    factors: dict[tuple[Any, str], Any] = {}
    has_one = _has_multiply_add(func)

    def on_call(call: Any) -> Any:
        kind = _kind_of(call)
        if kind is None:
            return call
        return _multiply_add(kind, call, factors) if has_one else kind(*call.args)

    func = mapped_body(func, (tvm.ir.Call, on_call))
    return func.with_body(tirx.SeqStmt([*map(_hidden, factors.values()), func.body])) if factors else func


def _has_multiply_add(func: Any) -> bool:
    features = codegen.llvm_get_cpu_features(func.attrs["target"])
    return not _MULTIPLY_ADD.isdisjoint(map(str, features))


def _multiply_add(kind: Any, call: Any, factors: dict[tuple[Any, str], Any]) -> Any:
    """The one operation itself, with a factor of 1 or -1: LLVM makes vectors of it, as it does not of a fence around
    what is subtracted."""
    dtype, lanes = str(call.ty.dtype).partition("x")[0], tvm.DataType(call.ty.dtype).lanes
    factor = factors.setdefault((kind, dtype), tirx.Var("minus_one" if kind is tirx.Sub else "one", dtype))
    wide = tirx.Broadcast(factor, lanes) if lanes > 1 else factor
    a, b = call.args
    return tirx.call_llvm_pure_intrin(str(call.ty.dtype), "llvm.fma", b, wide, a)


def _hidden(factor: Any) -> Any:
    """The number that ``factor`` stands for, which LLVM does not see, and leaves no factor out for."""
    number = tirx.const(-1.0 if factor.name == "minus_one" else 1.0, factor.ty)
    return tirx.Bind(factor, tirx.call_llvm_pure_intrin(str(factor.ty.dtype), "llvm.arithmetic.fence", number))


def _for_cuda(call: Any) -> Any:
    kind = _kind_of(call)
    if kind is None:
        return call
    dtype = str(call.ty.dtype)
    return tirx.call_pure_extern(dtype, _OF_CUDA[kind, dtype.partition("x")[0]], *call.args)


def _for_opencl(call: Any) -> Any:
    kind = _kind_of(call)
    if kind is None:
        return call
    element, _, lanes = str(call.ty.dtype).partition("x")
    name = f"{str(call.op.name).replace('.', '_')}_float{lanes}"
    return tirx.call_pure_extern(call.ty, name, *call.args) if element == "float32" else kind(*call.args)


def _kind_of(call: Any) -> Any:
    return _KINDS.get(str(getattr(call.op, "name", "")))
