"""Vectors that TVM has for scalars only: of choices by a condition, erf, cosh, rounding to the nearest, narrow floats.

In: PrimFuncs with vectorised loops. Out: the same with another intrinsic, or with such loops serial. TVM scalarises
such a call lane by lane at the statement that contains it; a name around it would keep the last lane's value for all
lanes, and a ``Let`` in the same statement is met twice, which TVM refuses.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import tvm
from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call, is_pure_op
from eqsat_layout.tir.structural import body_pass, changed_loop, is_one_of, nodes_of, structural_map_outermost

_FLOATS: Final = {"float32", "float64", "float16"}
"""Types of which calls of functions are for an instruction or a library: others are of TVM's own."""

_BFLOAT: Final = "bfloat16"
_OF_CHOICES: Final = ("float8_", "float6_", "float4_")


def serialise_let_vectors() -> Any:
    """A pass, for before TVM's ``VectorizeLoop``."""
    return body_pass("BindOneByOne", (tirx.For, _in_turn))


def round_in_vectors() -> Any:
    """A pass: LLVM makes the same instruction of the intrinsic that TVM has for vectors."""

    def on_call(call: Any) -> Any:
        return tirx.round(call.args[0]) if is_call(call, "tirx.nearbyint") else call

    return body_pass("RoundInVectors", (ir.Call, on_call))


def serialise_scalar_functions() -> Any:
    """A pass: TVM takes sinh and cosh for functions of vectors, and its code generator has them for scalars only.

    Hidden arithmetic is that of vectors when it is shown again.
    """
    return body_pass("FunctionsOneByOne", (tirx.For, _one_by_one))


def _one_by_one(loop: Any) -> Any:
    calls = nodes_of(loop.body, ir.Call) if loop.kind == tirx.ForKind.VECTORIZED else []
    floats = [call for call in calls if _is_taken_in_vectors(call) and not is_pure_op(call.op) and _is_of_floats(call)]
    if all(_has_vectors(call.op, str(call.ty.dtype), len(call.args)) for call in floats):
        return loop
    return changed_loop(loop, kind=tirx.ForKind.SERIAL)


@cache
def _has_vectors(op: Any, dtype: str, operands: int) -> bool:
    """TVM lowers a call with vectors to something else, as its code generator wants it."""
    lanes = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), 4)
    x, y = (tirx.decl_buffer((4,), dtype, name) for name in "xy")
    load = tirx.BufferLoad(x, [lanes])
    func = tirx.PrimFunc([x, y], tirx.BufferStore(y, ir.Call(op, [load] * operands, ret_ty=load.ty), [lanes]))
    mod = tvm.IRModule({"main": func.with_attr("target", tvm.target.Target("llvm"))})
    lowered = tirx.transform.LowerIntrin()(mod)["main"]
    return not any(call.op.same_as(op) for call in nodes_of(lowered.body, ir.Call))


def _is_of_floats(call: Any) -> bool:
    types = {str(one.ty.dtype) for one in (call, *call.args)}
    return len(types) == 1 and types <= _FLOATS


def _is_taken_in_vectors(call: Any) -> bool:
    is_known = isinstance(call.op, ir.Op) and call.op.has_attr("TVectorizable") and call.op.get_attr("TVectorizable")
    return bool(is_known)


def _in_turn(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    binds, stores = nodes_of(loop.body, tirx.Bind), nodes_of(loop.body, tirx.BufferStore)
    named = [*binds, *(store for store in stores if nodes_of(store.value, tirx.Let))]
    if not any(map(_is_taken_apart, named)) and not any(_is_of_bits(store, loop.loop_var) for store in stores):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def _is_of_bits(store: Any, lane: Any) -> bool:
    """It stores numbers that TVM converts by choices, which are of scalars, or the bits of one element in all lanes."""
    dtype, loads = str(store.buffer.dtype), list[Any]()
    read = [str(load.source.dtype) for load in nodes_of(store.value, ir.TensorLoad)]
    if any(own.startswith(_OF_CHOICES) for own in (dtype, *read)):
        return True
    if dtype == _BFLOAT:
        structural_map_outermost(store.value, (tirx.Cast, lambda cast: cast), (ir.TensorLoad, loads.append))
    return any(not is_one_of(lane, nodes_of(load, tirx.Var)) for load in loads)


def _is_taken_apart(statement: Any) -> bool:
    return any(not _is_for_vectors(call) for call in nodes_of(statement.value, ir.Call))


def _is_for_vectors(call: Any) -> bool:
    return _is_taken_in_vectors(call) or is_call(call, "tirx.reinterpret")
