"""Expressions of floats in single precision, whatever type they were written in.

In: an expression, and what loads of one buffer are in its place. Out: the same of float32: nothing is rounded on the
way. A division by what is the same for many elements is a product with its reciprocal, which is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cuda.kernels.operands import choice
from eqsat_layout.tir.structural import nodes_of, structural_map

_WIDE: Final = "float32"
_ARITHMETIC: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_FLOATS: Final = ("float16", "bfloat16", _WIDE)


def widened(value: Any, sums: Any, total: Any) -> Any:
    """``total``: of float32, stands where a sum is loaded from ``sums``."""

    def wide(one: Any) -> Any:
        dtype = str(one.ty.dtype)
        if isinstance(one, tvm.ir.TensorLoad) and one.source.same_as(sums):
            return total
        if isinstance(one, tirx.FloatImm) and dtype in _FLOATS:
            return tirx.const(float(one.value), _WIDE)
        if isinstance(one, tirx.Cast) and dtype in _FLOATS and str(one.value.ty.dtype) in _FLOATS:
            return wide(one.value)
        if isinstance(one, _ARITHMETIC) and dtype in _FLOATS:
            if isinstance(one, tirx.Div) and not _loads(one.b, sums):
                return wide(one.a) * (tirx.const(1.0, _WIDE) / wide(one.b))
            return type(one)(wide(one.a), wide(one.b))
        chosen = choice(one)
        if chosen is not None and dtype in _FLOATS:
            return tirx.if_then_else(narrow(chosen[0]), wide(chosen[1]), wide(chosen[2]))
        kept = narrow(one)
        return kept if dtype == _WIDE else tirx.Cast(_WIDE, kept)

    def narrow(one: Any) -> Any:
        """As it was written."""
        return structural_map(one, (tvm.ir.TensorLoad, _in_place(sums, total)))

    return wide(value)


def _in_place(sums: Any, total: Any) -> Callable[[Any], Any]:
    dtype = str(sums.ty.dtype)
    rounded = total if dtype == _WIDE else tirx.Cast(dtype, total)

    def on_load(load: Any) -> Any:
        return rounded if load.source.same_as(sums) else load

    return on_load


def _loads(value: Any, sums: Any) -> bool:
    return any(load.source.same_as(sums) for load in nodes_of(value, tvm.ir.TensorLoad))
