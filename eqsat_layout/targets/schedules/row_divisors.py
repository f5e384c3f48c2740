"""Divisions of a row by one number, as in softmax and norms, as products with its reciprocal.

In: a scheduled PrimFunc. Out: the same, where all lanes of a vector are divided by the same number: that is inverted
once, outside of the loop along the row; one that is known (the scale of what is quantised), here. The last bit may
differ; a divisor below 2^-126 or above 2^126 gives what its reciprocal, infinite or denormal, does.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, s_tir, tirx

from eqsat_layout.targets.schedules.lets import f32
from eqsat_layout.tir.structural import changed_block, changed_loop, mapped_body, nodes_of, structural_map

_NORMAL: Final = 2.0**-126


def divide_rows_once(func: Any) -> Any:
    """``func`` with such divisions as products."""
    return mapped_body(func, (tirx.For, _of_lanes))


def _of_lanes(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, s_tir.SBlockRealize):
        return loop
    realize = loop.body
    block = realize.block
    bound = zip(block.iter_vars, realize.iter_values, strict=True)
    moving = {axis.var for axis, value in bound if _uses(value, {loop.loop_var})} | {loop.loop_var}

    def on_division(division: Any) -> Any:
        is_float = str(division.ty.dtype) == "float32"
        if is_float and isinstance(division.b, tirx.FloatImm):
            inverse = _inverse(float(division.b.value))
            return division if inverse is None else division.a * f32(inverse)
        if not is_float or not nodes_of(division.b, ir.TensorLoad) or _uses(division.b, moving):
            return division
        return division.a * (f32(1) / division.b)

    body = structural_map(block.body, (tirx.Div, on_division))
    if body.same_as(block.body):
        return loop
    changed = s_tir.SBlockRealize(realize.iter_values, realize.predicate, changed_block(block, body=body))
    return changed_loop(loop, body=changed)


def _inverse(number: float) -> float | None:
    """The inverse of a number; both are normal numbers."""
    is_normal = _NORMAL <= abs(number) <= 1 / _NORMAL
    return 1 / number if is_normal else None


def _uses(value: Any, variables: set[Any]) -> bool:
    return any(var in variables for var in nodes_of(value, ir.Var))
