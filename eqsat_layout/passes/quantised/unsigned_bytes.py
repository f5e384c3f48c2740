"""Quantised values as unsigned bytes where they were signed ones.

In: a Relax module. Out: one whose products find the unsigned data that the CPU's instructions take. A value and its
zero point both grow by 128, so the number that they stand for stays the same.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import ir, relax

from eqsat_layout.passes.quantised.reader import SUM_DTYPE
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of, with_relax_functions

_UNSIGNED, _SIGNED = "uint8", "int8"

SIGN_OFFSET: Final = 128
"""What an unsigned byte is more than the signed byte whose first bit is the other one."""


def with_unsigned_bytes(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with values quantised to uint8 that were quantised to int8, where they are only dequantised again."""

    def changed(function: Any) -> Any:
        signed = _signed(function)
        return _UnsignedWriter(mod, signed).visit_expr(function) if signed else function

    return with_relax_functions(mod, changed)


def _signed(function: Any) -> set[Any]:
    """The variables of int8 values that are quantised in ``function`` and only dequantised there."""
    bindings = nodes_of(function, relax.VarBinding)
    found = {b.var for b in bindings if is_call(b.value, "relax.quantize") and str(b.value.ty.dtype) == _SIGNED}
    found = {
        b.var for b in bindings if b.var in found and isinstance(b.var, relax.DataflowVar) and _has_signed_zero(b.value)
    }
    others = [b.value for b in bindings if not is_call(b.value, "relax.dequantize") or not _has_signed_zero(b.value)]
    others += [cast.value for cast in nodes_of(function, relax.MatchCast)]
    others += [sequence.body for sequence in nodes_of(function, relax.SeqExpr)]
    return found - {var for other in others for var in relax.analysis.free_vars(other)}


def _has_signed_zero(call: Any) -> bool:
    """The zero point of a ``quantize`` or ``dequantize`` is a constant of int8."""
    return isinstance(call.args[2], ir.GenericConst) and str(call.args[2].ty.dtype) == _SIGNED


@relax.expr_functor.mutator
class _UnsignedWriter(relax.PyExprMutator):  # type: ignore[misc]
    """Writes ``quantize`` and ``dequantize`` of ``signed`` with uint8 values, whose zero point is 128 greater."""

    def __init__(self, mod: tvm.IRModule, signed: set[Any]) -> None:
        super().__init__(mod)
        self._signed = signed

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        is_read = is_call(call, "relax.dequantize") and call.args[0] in self._signed
        if binding.var not in self._signed and not is_read:
            super().visit_var_binding_(binding)
            return
        values, scale = (self.visit_expr(arg) for arg in call.args[:2])
        zero = relax.const((call.args[2].value.numpy().astype(SUM_DTYPE) + SIGN_OFFSET).astype(_UNSIGNED), _UNSIGNED)
        make = relax.op.dequantize if is_read else relax.op.quantize
        dtype = str(call.ty.dtype) if is_read else _UNSIGNED
        made = make(values, scale, zero, axis=int(call.attrs.axis), out_dtype=dtype)
        if is_read:
            super().visit_var_binding_(relax.VarBinding(binding.var, made))
        else:
            self.set_var_remap(binding.var, self.builder_.emit(made))
