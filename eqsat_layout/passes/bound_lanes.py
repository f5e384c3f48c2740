"""Vectors whose values are bound to names and chosen by a condition.

In: PrimFuncs with vectorised loops. Out: the same, in which such loops go one step after the other. TVM takes a choice
apart lane by lane at the statement that makes it; a name that is bound there keeps the last lane's value for all.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import nodes_of, primfunc_pass, structural_map


def bind_one_by_one() -> Any:
    """A pass, for before TVM's ``VectorizeLoop``."""
    return primfunc_pass("BindOneByOne", lambda func: func.with_body(structural_map(func.body, (tirx.For, _in_turn))))


def _in_turn(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not any(map(_chooses, nodes_of(loop.body, tirx.Bind))):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def _chooses(bind: Any) -> bool:
    return any(map(is_choice, nodes_of(bind.value, ir.Call)))
