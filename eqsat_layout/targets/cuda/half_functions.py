"""Functions that CUDA C++ does not have for halves of either kind, computed in single precision, and quotients that are
products: those by powers of two, which compilers see in single precision only.

In: a PrimFunc before its functions become those of the language. Out: the same, operands of such a function converted
to float32 and its result back.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import mapped_body, primfunc_pass

_NATIVE: Final = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "fabs"),
        *("floor", "ceil", "trunc", "tanh", "tan", "atan", "erf", "pow"),
    )
)
"""Those that it has, or that TVM writes in front of the kernel."""


def half_functions() -> Any:
    """A pass."""

    def on_call(call: Any) -> Any:
        is_pure = isinstance(call.op, ir.Op) and call.op.get_attr("TCallEffectKind") == tirx.CallEffectKind.Pure.value
        if not is_pure or str(call.op.name) in _NATIVE or not _are_halves([call, *call.args]):
            return call
        wide = _wide(call)
        args = [tirx.Cast(wide, arg) for arg in call.args]
        return tirx.Cast(call.ty.dtype, ir.Call(call.op, args, ret_ty=ir.PrimType(wide)))

    def on_remainder(node: Any) -> Any:
        if not _are_halves([node]):
            return node
        wide = _wide(node)
        return tirx.Cast(node.ty.dtype, tirx.Mod(tirx.Cast(wide, node.a), tirx.Cast(wide, node.b)))

    def on_quotient(node: Any) -> Any:
        divisor = node.b.value if isinstance(node.b, tirx.Broadcast) else node.b
        if not isinstance(divisor, tirx.FloatImm) or not _are_halves([node]):
            return node
        mantissa, exponent = math.frexp(abs(float(divisor.value)))
        if mantissa != 0.5 or abs(exponent) > _EXPONENT:
            return node
        factor = tirx.FloatImm(divisor.ty.dtype, 1 / float(divisor.value))
        return tirx.Mul(node.a, tirx.Broadcast(factor, node.b.lanes) if isinstance(node.b, tirx.Broadcast) else factor)

    def changed(func: Any) -> Any:
        rules = ((ir.Call, on_call), (tirx.Mod, on_remainder), (tirx.Div, on_quotient))
        return mapped_body(func, *rules)

    return primfunc_pass("HalfFunctions", changed)


_HALVES: Final = ("bfloat16", "float16")
_EXPONENT: Final = 13
"""Of powers of two that are exact in both, and their reciprocals."""


def _are_halves(expressions: list[Any]) -> bool:
    return all(str(getattr(one.ty, "dtype", "")).startswith(_HALVES) for one in expressions)


def _wide(expression: Any) -> str:
    """The type in single precision with as many lanes."""
    return str(expression.ty.dtype).replace("bfloat16", "float32").replace("float16", "float32")
