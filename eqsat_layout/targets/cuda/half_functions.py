"""Functions that CUDA C++ does not have for halves of either kind, computed in single precision.

In: a PrimFunc before its functions become those of the language. Out: the same, operands of such a function converted
to float32 and its result back.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import primfunc_pass, structural_map

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

    def changed(func: Any) -> Any:
        return func.with_body(structural_map(func.body, (ir.Call, on_call), (tirx.Mod, on_remainder)))

    return primfunc_pass("HalfFunctions", changed)


_HALVES: Final = ("bfloat16", "float16")


def _are_halves(expressions: list[Any]) -> bool:
    return all(str(getattr(one.ty, "dtype", "")).startswith(_HALVES) for one in expressions)


def _wide(expression: Any) -> str:
    """The type in single precision with as many lanes."""
    return str(expression.ty.dtype).replace("bfloat16", "float32").replace("float16", "float32")
