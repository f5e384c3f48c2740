"""Ops of the numbers 0 and 1, of which TVM writes less than they say.

In: a Relax module. Out: the same, in which ``x + 0``, ``x - 0``, ``x * 1`` and ``x / 1`` are the copy of x, and
``x * 0`` is the 0, that TVM's legalisation makes of them where the number is a constant without axes: -0.0 stays what
it is, and no NaN comes of infinity. Layouts are planned over constants that are operands, of which TVM leaves nothing
out.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.passes.changed_calls import with_changed_calls
from eqsat_layout.tir.structural import nodes_of

_NUMBERS: Final = (0.0, 1.0)


def with_literals_left_out(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no op has such a number. The input is not changed."""
    return with_changed_calls(mod, _has_number, _Copies)


def _has_number(call: Any) -> bool:
    is_op = isinstance(call.op, tvm.ir.Op) and isinstance(call.ty, relax.TensorType)
    return is_op and any(map(_is_number, call.args)) and any(isinstance(arg, tvm.ir.Var) for arg in call.args)


def _is_number(arg: Any) -> bool:
    if not isinstance(arg, tvm.ir.GenericConst) or not isinstance(arg.ty, relax.TensorType) or arg.ty.ndim:
        return False
    return "float" in str(arg.ty.dtype) and float(arg.value.numpy()) in _NUMBERS


@relax.expr_functor.mutator
class _Copies(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        found = _copy_of(call) if _has_number(call) else None
        if found is None:
            return call
        func, operands = found
        name = str(call.op.name).rpartition(".")[2]
        return relax.call_tir(self.builder_.add_func(func, name), relax.Tuple(operands), call.ty)


def _copy_of(call: Any) -> tuple[Any, list[Any]] | None:
    """A PrimFunc that copies, or writes a number, and what it reads; ``None`` where TVM leaves nothing out."""
    builder = relax.BlockBuilder()
    given = {arg: relax.Var(f"x{place}", arg.ty) for place, arg in enumerate(call.args) if isinstance(arg, tvm.ir.Var)}
    with builder.function("main", list(given.values())):
        alone = relax.Call(call.op, [given.get(arg, arg) for arg in call.args], call.attrs, call.ty_args)
        builder.emit_func_output(builder.emit(alone))
    made = legalize(builder.finalize())
    funcs = [func for func in made.functions.values() if isinstance(func, tirx.PrimFunc)]
    calls = [one for one in nodes_of(made["main"], tvm.ir.Call) if one.op == _CALL_TIR]
    if len(funcs) != 1 or len(calls) != 1 or len(calls[0].args) != 2:
        return None
    stores = nodes_of(funcs[0].body, tirx.BufferStore)
    is_left_out = len(stores) == 1 and isinstance(stores[0].value, tvm.ir.TensorLoad | tirx.FloatImm)
    own = {var: arg for arg, var in given.items()}
    read = [own.get(arg) for arg in calls[0].args[1].fields]
    is_known = all(arg is not None for arg in read)
    return (without_public_name(funcs[0]), read) if is_left_out and is_known else None


_CALL_TIR: Final = tvm.ir.Op.get("relax.call_tir")
