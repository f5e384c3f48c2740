"""Let-bound vectors of intrinsics that TVM has for scalars only: choices by a condition, erf.

In: PrimFuncs with vectorised loops. Out: the same, with such loops serial. TVM scalarises such a call lane by lane at
the statement that contains it; a ``Let`` around it would keep the last lane's value for all lanes.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map


def serialise_let_vectors() -> Any:
    """A pass, for before TVM's ``VectorizeLoop``."""
    return primfunc_pass("BindOneByOne", lambda func: func.with_body(structural_map(func.body, (tirx.For, _in_turn))))


def _in_turn(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not any(map(_is_taken_apart, nodes_of(loop.body, tirx.Bind))):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def _is_taken_apart(bind: Any) -> bool:
    return any(not _is_for_vectors(call) for call in nodes_of(bind.value, ir.Call))


def _is_for_vectors(call: Any) -> bool:
    known = isinstance(call.op, ir.Op) and call.op.has_attr("TVectorizable") and call.op.get_attr("TVectorizable")
    return bool(known) or is_call(call, "tirx.reinterpret")
