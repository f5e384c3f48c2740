"""Vectors of halves are copied and computed by pairs, as the machine has it: TVM writes both lane by lane, and the
compiler then takes registers apart, and puts them together again.

In: a PrimFunc as the code generator gets it. Out: the same, with functions in the place of arithmetic, and a kernel's
text with what these are.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.gpu.kernels.float_bounds import is_safe
from eqsat_layout.tir.structural import body_pass

_WHOLE: Final = {"float16x2": "uint32", "float16x4": "uint64"}
"""By vector what holds its bits: TVM calls no function with a vector, but one for each lane."""
_PREFIX: Final = "eqsat_pairs_"
_BY_PAIR: Final = {tirx.Add: "__hadd2", tirx.Sub: "__hsub2", tirx.Mul: "__hmul2"}
_BOUNDS: Final = {tirx.Max: ("__hmax2", "__hgt2_mask"), tirx.Min: ("__hmin2", "__hlt2_mask")}
"""By a function that forgets a NaN, and by one that compares: TIR has the second operand then."""
_FUNCTION: Final = """template <class T> static inline __device__ T {name}(T a, T b) {{
  half2* x = reinterpret_cast<half2*>(&a);
  half2* y = reinterpret_cast<half2*>(&b);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(half2)); ++i) {{
    {step}
  }}
  return a;
}}
"""
_STEP: Final = "x[i] = {of_pair}(x[i], y[i]);"
_CHOICE: Final = """unsigned is_first = {of_pair}(x[i], y[i]);
    unsigned& first = reinterpret_cast<unsigned&>(x[i]);
    first = (first & is_first) | (reinterpret_cast<unsigned&>(y[i]) & ~is_first);"""
_KERNEL: Final = 'extern "C" __global__'
_VECTOR: Final = "  __host__ __device__ half4_bfloat164() :"
"""The first constructor of TVM's type for four halves."""
_COPIES: Final = """  __host__ __device__ half4_bfloat164(const half4_bfloat164& other) { *this = other; }
  __host__ __device__ half4_bfloat164& operator=(const half4_bfloat164& other) {
    *reinterpret_cast<uint2*>(this) = *reinterpret_cast<const uint2*>(&other);
    return *this;
  }
"""


def paired_halves() -> Any:
    """A pass."""
    rules = [(kind, _arithmetic) for kind in _BY_PAIR] + [(kind, _bound) for kind in _BOUNDS]
    return body_pass("PairedHalves", *rules)


def with_pairs(text: str) -> str:
    """A kernel's text with the functions that it calls in front of it, and copies by pairs."""
    called = sorted(set(re.findall(rf"\b{_PREFIX}(\w+)\(", text)))
    functions = "".join(_FUNCTION.format(name=_PREFIX + name, step=_step(f"__{name}")) for name in called)
    return text.replace(_VECTOR, _COPIES + _VECTOR, 1).replace(_KERNEL, functions + _KERNEL, 1)


def _step(of_pair: str) -> str:
    return (_CHOICE if of_pair.endswith("_mask") else _STEP).format(of_pair=of_pair)


def _arithmetic(node: Any) -> Any:
    return _called(node, _BY_PAIR[type(node)])


def _bound(node: Any) -> Any:
    return _called(node, _BOUNDS[type(node)][not is_safe(node)])


def _called(node: Any, of_pair: str) -> Any:
    dtype = str(node.ty.dtype)
    whole = _WHOLE.get(dtype)
    if whole is None:
        return node
    bits = (tirx.reinterpret(whole, operand) for operand in (node.a, node.b))
    return tirx.reinterpret(dtype, tirx.call_pure_extern(whole, _PREFIX + of_pair.removeprefix("__"), *bits))
