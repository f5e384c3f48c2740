"""Divisions by a number, and of a row by one, as in softmax and norms, as products with its reciprocal.

In: a scheduled PrimFunc. Out: the same, where all lanes of a vector are divided by the same number: that is inverted
once, outside of the loop along the row; one that is known, here. The last bit may differ, so what is rounded after is
divided, but for bytes, of which a number half-way between two may become the other; a divisor below 2^-126 or above
2^126 gives what its reciprocal, infinite or denormal, does. A division takes 16 cycles for a vector of AVX-512, a
product half a one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tvm import ir, s_tir, tirx

from eqsat_layout.targets.schedules.lets import f32
from eqsat_layout.targets.schedules.quantised_values import quantising
from eqsat_layout.targets.schedules.rounded_quotients import rounded_quotients
from eqsat_layout.tir.structural import (
    changed_block,
    changed_loop,
    is_one_of,
    mapped_body,
    nodes_of,
    structural_map_outermost,
)

_NORMAL: Final = 2.0**-126


def divide_rows_once(func: Any) -> Any:
    """``func`` with such divisions as products."""
    exact = rounded_quotients(func, apart=quantising(func))
    func = mapped_body(func, (tirx.For, partial(_of_lanes, exact=exact)))
    body = _with_products(func.body, _of_a_number, exact)
    return func if body.same_as(func.body) else func.with_body(body)


def _of_lanes(loop: Any, exact: Sequence[Any]) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, s_tir.SBlockRealize):
        return loop
    realize = loop.body
    block = realize.block
    bound = zip(block.iter_vars, realize.iter_values, strict=True)
    moving = {axis.var for axis, value in bound if _uses(value, {loop.loop_var})} | {loop.loop_var}

    def inverse(divisor: Any) -> Any:
        is_one = nodes_of(divisor, ir.TensorLoad) and not _uses(divisor, moving)
        return f32(1) / divisor if is_one else _of_a_number(divisor)

    body = _with_products(block.body, inverse, exact)
    if body.same_as(block.body):
        return loop
    changed = s_tir.SBlockRealize(realize.iter_values, realize.predicate, changed_block(block, body=body))
    return changed_loop(loop, body=changed)


def _with_products(node: Any, inverse_of: Callable[[Any], Any], exact: Sequence[Any]) -> Any:
    """``node`` with products in the place of divisions by what has an inverse, apart from those that are to be
    ``exact``."""

    def on_division(division: Any) -> Any:
        is_free = str(division.ty.dtype) == "float32" and not is_one_of(division, exact)
        inverse = inverse_of(division.b) if is_free else None
        return None if inverse is None else inside(division.a) * inverse

    def inside(value: Any) -> Any:
        return structural_map_outermost(value, (tirx.Div, on_division))

    return inside(node)


def _of_a_number(divisor: Any) -> Any:
    inverse = _inverse(float(divisor.value)) if isinstance(divisor, tirx.FloatImm) else None
    return None if inverse is None else f32(inverse)


def _inverse(number: float) -> float | None:
    """The inverse of a number; both are normal numbers."""
    is_normal = _NORMAL <= abs(number) <= 1 / _NORMAL
    return 1 / number if is_normal else None


def _uses(value: Any, variables: set[Any]) -> bool:
    return any(var in variables for var in nodes_of(value, ir.Var))
