"""A float32 module computed in 16 bits.

In: a module in float32, plain for inference. Out: the same with its convolutions and matrix products, and what follows
them elementwise, in the precision asked for: operands and what is kept in memory have 16 bits, products are added up in
float32, and what is sensitive (softmax, norms, sums) stays in float32. Inputs and results keep their types. TVM's
ToMixedPrecision decides what goes with what; it knows float16 only, so bfloat16 takes the place of what it made so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tvm
from tvm import relax, tirx
from tvm.relax import op

from eqsat_layout.errors import EqsatError, did_you_mean
from eqsat_layout.tir.structural import Rule, nodes_of, structural_map, with_relax_functions

PRECISIONS: Final = ("float16", "bfloat16")
"""Those that there are."""
_HALF: Final = PRECISIONS[0]
_SINGLE: Final = "float32"
_CALL: Final = tvm.ir.Op.get("relax.call_tir")
_CLIP: Final = tvm.ir.Op.get("relax.clip")


def in_precision(mod: tvm.IRModule, precision: str) -> tvm.IRModule:
    """:class:`EqsatError` for a precision that is none, and for a module that has nothing to convert."""
    if precision not in PRECISIONS:
        near = did_you_mean(str(precision), PRECISIONS)
        raise EqsatError(f"precision {precision!r} is not known; {near}there are {', '.join(PRECISIONS)}")
    given = set(_dtypes(mod))
    if precision != _HALF and _HALF in given:
        raise EqsatError(f"precision {precision!r}: the module has {_HALF} already, and would have both")
    plain = _of_tensors(mod)
    calls = _KernelCalls()
    converted = calls.shown(relax.transform.ToMixedPrecision(out_dtype=_SINGLE)(calls.hidden(plain)))
    if _HALF not in set(_dtypes(converted)) - given:
        raise EqsatError(f"precision {precision!r}: the module has no product of float32 to compute so")
    return converted if precision == _HALF else _with(converted, precision)


def _with(mod: tvm.IRModule, precision: str) -> tvm.IRModule:
    """``mod``, all of whose halves ToMixedPrecision made, with another dtype in their place."""

    def on_type(ty: Any) -> Any:
        return relax.TensorType(ty.shape, precision, ty.vdevice) if str(ty.dtype) == _HALF else ty

    def on_call(call: Any) -> Any:
        kind = type(call.attrs).__tvm_ffi_type_info__ if call.attrs is not None else None
        values = {field.name: getattr(call.attrs, field.name) for field in kind.fields} if kind else {}
        if kind is None or not any(str(value) == _HALF for value in values.values()):
            return call if _is_accepted(call, precision) else _in_single(call, precision)
        changed = {name: precision if str(value) == _HALF else value for name, value in values.items()}
        return tvm.ir.Call(call.op, list(call.args), attrs=tvm.ir.make_node(kind.type_key, **changed), ret_ty=call.ty)

    return _mapped(mod, (relax.TensorType, on_type), (tvm.ir.Call, on_call))


def _is_accepted(call: Any, precision: str) -> bool:
    """TVM knows the type of the op's result, which it does not for group norms of bfloat16: they want "a float"."""
    if not isinstance(call.op, tvm.ir.Op) or not any(_has(arg, precision) for arg in call.args):
        return True
    try:
        relax.BlockBuilder().normalize(relax.Call(call.op, list(call.args), call.attrs, call.ty_args))
    except TypeError:
        return False
    return True


def _in_single(call: Any, precision: str) -> Any:
    """The op of float32, its result in the precision again."""
    args = [op.astype(arg, _SINGLE) if _has(arg, precision) else arg for arg in call.args]
    return op.astype(relax.Call(call.op, args, call.attrs, call.ty_args), precision)


def _has(value: Any, dtype: str) -> bool:
    return _is_tensor(value) and str(value.ty.dtype) == dtype


def _of_tensors(mod: tvm.IRModule) -> tvm.IRModule:
    """``clip`` with tensors in place of numbers, as ToMixedPrecision takes no others."""

    def on_call(call: Any) -> Any:
        if call.op != _CLIP or not all(isinstance(bound, tirx.IntImm | tirx.FloatImm) for bound in call.args[1:]):
            return call
        x, *bounds = call.args
        low, high = (relax.const(bound.value, str(x.ty.dtype)) for bound in bounds)
        return op.maximum(op.minimum(x, high), low)

    return _mapped(mod, (tvm.ir.Call, on_call))


class _KernelCalls:
    """Calls of kernels, as readers write them, which ToMixedPrecision fails on: it is shown calls of functions, whose
    operands keep their types."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def hidden(self, mod: tvm.IRModule) -> tvm.IRModule:
        return _mapped(mod, (tvm.ir.Call, self._hide))

    def shown(self, mod: tvm.IRModule) -> tvm.IRModule:
        return _mapped(mod, (tvm.ir.Call, self._show)) if self._known else mod

    def _hide(self, call: Any) -> Any:
        if call.op != _CALL:
            return call
        args = [*call.args[1].fields, *list(call.args)[2:]]
        name = tvm.ir.GlobalVar(f"kernel_{len(self._known)}")
        relax.expr._update_type(name, relax.FuncType([arg.ty for arg in args], call.ty))
        self._known[name] = call
        return relax.Call(name, args)

    def _show(self, call: Any) -> Any:
        own = self._known.get(call.op) if isinstance(call.op, tvm.ir.GlobalVar) else None
        if own is None:
            return call
        count = len(own.args[1].fields)
        args = [own.args[0], relax.Tuple(list(call.args)[:count]), *list(call.args)[count:]]
        return relax.Call(own.op, args, own.attrs, own.ty_args)


def _mapped(mod: tvm.IRModule, *rules: Rule) -> tvm.IRModule:
    """``mod`` with nodes of its Relax functions replaced."""
    mapped = with_relax_functions(mod, lambda func: structural_map(func, *rules))
    normalised: tvm.IRModule = relax.transform.Normalize()(mapped)
    return normalised


def _dtypes(mod: tvm.IRModule) -> Iterator[str]:
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            yield from (str(var.ty.dtype) for var in nodes_of(func, tvm.ir.Var) if _is_tensor(var))


def _is_tensor(value: Any) -> bool:
    return isinstance(getattr(value, "ty", None), relax.TensorType)
