"""Values of narrow floats between the ops of one kernel are rounded, as they are between kernels.

In: PrimFuncs. Out: the same with calls of an op that TVM does not know around values that are to be rounded, without
those around what is rounded anyway, or with arithmetic in their place. TVM computes such values in float32 and rounds
where they are stored in a buffer of the function's own (``BF16ComputeLegalize``): it drops a cast to the type and back,
and what several ops that became one kernel hand on to each other. Inside of one op that is what TVM gives, so what is
to be rounded is said before ops are fused.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.tir.intrinsics import is_choice, pure_op
from eqsat_layout.tir.narrow_floats import NARROW
from eqsat_layout.tir.structural import body_pass, is_one_of, mapped_body, nodes_of, structural_map, substitute

_HALF: Final = "float16"
ROUNDED: Final = (*NARROW, _HALF)
"""The same and what some targets compute in a wider type."""

_OPS: Final = {narrow: pure_op(f"rounded_to_{narrow}", "a value that is rounded to the type") for narrow in ROUNDED}
_TYPES: Final = {str(op.name): narrow for narrow, op in _OPS.items()}


def is_rounding(node: Any) -> bool:
    """Whether it is a call of our op."""
    return isinstance(node, tvm.ir.Call) and str(getattr(node.op, "name", "")) in _TYPES


def rounded(dtype: str, value: Any) -> Any:
    """A number of ``dtype`` that is near ``value``, in the type of this."""
    return tvm.ir.Call(_OPS[dtype], [value], ret_ty=value.ty)


def with_rounding(func: Any, types: Collection[str] = NARROW) -> Any:
    """``func``, one op, with its results of ``types`` rounded and its operands, for when these stay inside of a kernel.

    Reductions are left as they are written, so that schedules know them: what reads their results rounds these.
    """
    params = [p for p in func.params if type(p.ty) is tirx.BufferType and str(p.ty.dtype) in types]
    if not params:
        return func

    def rounded(store: Any) -> Any:
        if _moves(store.value) or any(load.source.same_as(store.buffer) for load in _loads(store.value)):
            return store
        value = structural_map(store.value, (tvm.ir.TensorLoad, read))
        value = _call(value) if is_one_of(store.buffer, params) else value
        return tirx.BufferStore(store.buffer, value, list(store.indices))

    def read(load: Any) -> Any:
        return _call(load) if is_one_of(load.source, params) else load

    return mapped_body(func, (tirx.BufferStore, rounded))


def without_idle_rounding(func: Any) -> Any:
    """``func``, a kernel, without rounding of what lies in buffers of the function's own, or is put there."""
    params = list(func.params)

    def is_held(buffer: Any, rounding: Any) -> bool:
        """A parameter of the type to which it rounds."""
        return is_one_of(buffer, params) and rounding.op.same_as(_OPS.get(str(buffer.ty.dtype)))

    def stored(store: Any) -> Any:
        if not is_rounding(store.value) or not is_held(store.buffer, store.value):
            return store
        return tirx.BufferStore(store.buffer, store.value.args[0], list(store.indices))

    def idle(call: Any) -> Any:
        if not is_rounding(call):
            return call
        (value,) = call.args
        is_read = isinstance(value, tvm.ir.TensorLoad) and is_held(value.source, call)
        is_done = is_rounding(value) and value.op.same_as(call.op)
        return value if is_read or is_done else call

    return mapped_body(func, (tvm.ir.Call, idle), (tirx.BufferStore, stored))


def round_by_arithmetic() -> Any:
    """A pass, for between TVM's passes that say how values of these types are computed and how they are stored."""
    return body_pass("RoundByArithmetic", (tvm.ir.Call, _written_out))


def _written_out(call: Any) -> Any:
    if not is_rounding(call):
        return call
    (value,) = call.args
    narrow, (wide, _, lanes) = _TYPES[str(call.op.name)], str(value.ty.dtype).partition("x")
    if wide == narrow:  # the target computes with it
        return value
    if narrow == _HALF:  # targets convert it
        return tirx.Cast(str(value.ty.dtype), tirx.Cast(f"{narrow}x{lanes}" if lanes else narrow, value))
    made, taken = _there_and_back(narrow, wide, int(lanes or 1))
    var = tirx.Var("exact", value.ty)
    return tirx.Let(var, value, substitute(made, {taken: var}))  # it is read several times


def cast_to_narrow(dtype: str, value: Any) -> Any:
    """What TVM makes of a cast to one of ``NARROW`` of ``value``, which is computed once here."""
    narrow, _, lanes = dtype.partition("x")
    wide, _, _ = str(value.ty.dtype).partition("x")
    there, _, taken = _legalised(narrow, wide, int(lanes or 1))
    var = tirx.Var("exact", value.ty)
    bits = substitute(there.args[0], {taken: var})
    return tvm.ir.Call(there.op, [tirx.Let(var, value, bits)], ret_ty=there.ty)


@cache
def _there_and_back(narrow: str, wide: str, lanes: int) -> tuple[Any, Any]:
    """What TVM makes of a value that is stored as ``narrow`` and read again; and the variable that it is made of."""
    there, back, taken = _legalised(narrow, wide, lanes)
    return structural_map(back, (tvm.ir.TensorLoad, lambda _: there)), taken


@cache
def _legalised(narrow: str, wide: str, lanes: int) -> tuple[Any, Any, Any]:
    """A variable as ``narrow``, a load of this as ``wide``; and the variable."""
    vector = f"x{lanes}" if lanes > 1 else ""
    taken = tirx.Var("taken", wide + vector)
    buffers = [tirx.decl_buffer((lanes,), dtype, "b") for dtype in (narrow, wide)]
    place = [tirx.Ramp(0, 1, lanes) if lanes > 1 else tirx.IntImm("int32", 0)]
    stores = [
        tirx.BufferStore(buffers[0], tirx.Cast(narrow + vector, taken), place),
        tirx.BufferStore(buffers[1], tirx.Cast(wide + vector, tirx.BufferLoad(buffers[0], place)), place),
    ]
    func = tirx.PrimFunc([taken, *buffers], tirx.SeqStmt(stores))
    mod = tvm.IRModule({"f": func})
    for one in (tirx.transform.BF16ComputeLegalize(), tirx.transform.FP8ComputeLegalize()):
        mod = one(mod)
    func = structural_map(mod["f"].body, (tvm.ir.Call, _as_select))
    there, back = (store.value for store in nodes_of(func, tirx.BufferStore))
    return there, back, mod["f"].params[0]


def _as_select(call: Any) -> Any:
    """A choice for each lane: LLVM has branches on one condition only, and the values are arithmetic."""
    return tirx.Select(*call.args) if is_choice(call) else call


def _call(value: Any) -> Any:
    return rounded(str(value.ty.dtype), value)


def _moves(value: Any) -> bool:
    """It is one of the operands as it is, or a number."""
    if isinstance(value, tirx.Select):
        return _moves(value.true_value) and _moves(value.false_value)
    if is_choice(value):
        return all(map(_moves, list(value.args)[1:]))
    return isinstance(value, tvm.ir.TensorLoad | tirx.FloatImm | tirx.IntImm)


def _loads(value: Any) -> list[Any]:
    return nodes_of(value, tvm.ir.TensorLoad)
