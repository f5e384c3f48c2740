"""Vectors of intrinsics that TVM has for scalars only: choices by a condition, erf, rounding to the nearest integer.

In: PrimFuncs with vectorised loops. Out: the same with another intrinsic, or with such loops serial. TVM scalarises
such a call lane by lane at the statement that contains it; a name around it would keep the last lane's value for all
lanes, and a ``Let`` in the same statement is met twice, which TVM refuses.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import body_pass, nodes_of


def serialise_let_vectors() -> Any:
    """A pass, for before TVM's ``VectorizeLoop``."""
    return body_pass("BindOneByOne", (tirx.For, _in_turn))


def round_in_vectors() -> Any:
    """A pass: LLVM makes the same instruction of the intrinsic that TVM has for vectors."""

    def on_call(call: Any) -> Any:
        return tirx.round(call.args[0]) if is_call(call, "tirx.nearbyint") else call

    return body_pass("RoundInVectors", (ir.Call, on_call))


def _in_turn(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    binds, stores = nodes_of(loop.body, tirx.Bind), nodes_of(loop.body, tirx.BufferStore)
    named = [*binds, *(store for store in stores if nodes_of(store.value, tirx.Let))]
    if not any(map(_is_taken_apart, named)):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def _is_taken_apart(statement: Any) -> bool:
    return any(not _is_for_vectors(call) for call in nodes_of(statement.value, ir.Call))


def _is_for_vectors(call: Any) -> bool:
    known = isinstance(call.op, ir.Op) and call.op.has_attr("TVectorizable") and call.op.get_attr("TVectorizable")
    return bool(known) or is_call(call, "tirx.reinterpret")
