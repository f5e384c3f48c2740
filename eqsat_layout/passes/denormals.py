"""Constants without denormal numbers, with which arithmetic takes a hundred cycles and more.

In: a Relax module. Out: the same with 0 in the place of float32 numbers below 1.2e-38: weights that have decayed, or a
softmax that was computed ahead. It is an approximation.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.graph.skeleton import data_of
from eqsat_layout.tir.structural import nodes_of

_SIGN: Final = np.uint32(0x80000000)
_NORMAL: Final = np.uint32(0x00800000)
"""Bits of the least float32 that is normal."""
_PIECE: Final = 1 << 15


def without_denormals(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no constant has one. The input is not changed."""
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, relax.Function) and _has_denormals(f)}
    if not functions:
        return mod
    writer = _Writer(mod)
    changed = dict(mod.functions.items()) | {name: writer.visit_expr(f) for name, f in functions.items()}
    return tvm.IRModule(changed, attrs=mod.attrs, global_infos=mod.global_infos)


def _has_denormals(function: Any) -> bool:
    return any(_has_some(_bits(constant)) for constant in nodes_of(function, tvm.ir.GenericConst))


def _has_some(bits: npt.NDArray[np.uint32]) -> bool:
    """Piece by piece, so that what is computed between stays in a cache."""
    return any(_denormals(bits[start : start + _PIECE]).any() for start in range(0, bits.size, _PIECE))


def _bits(constant: Any) -> npt.NDArray[np.uint32]:
    """The bits of its elements, flat; none if these are no float32."""
    is_float = isinstance(constant.value, tvm.runtime.Tensor) and str(constant.value.dtype) == "float32"
    return np.frombuffer(data_of(constant.value) if is_float else b"", "uint32")


def _denormals(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    one = np.uint32(1)
    return (bits & ~_SIGN) - one < _NORMAL - one  # 0 less 1 is the largest number


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def visit_generic_const_(self, constant: Any) -> Any:
        bits = _bits(constant)
        small = _denormals(bits)
        if not small.any():
            return constant
        tame = np.where(small, bits & _SIGN, bits).view("float32")
        return relax.const(tame.reshape(tuple(map(int, constant.value.shape))), "float32")
