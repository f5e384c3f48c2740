"""Selects of which only one value may be computed as branches, and branches of lanes as selects.

In: a PrimFunc of loops over flat memory. Out: the same, with ``if_then_else`` for each ``Select`` whose values have an
effect, or load at an index that is not known to be inside of its buffer. TVM's own pass takes every load for one that
may be outside: a branch on data, which the CPU guesses wrong half of the time and LLVM puts into no vectors. Where
lanes of a vector differ in what an ``if_then_else`` gives, or TVM does not see that they are the same, TVM takes the
vector apart.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.conditions import COMPARISONS, change_of
from eqsat_layout.tir.intrinsics import is_choice, is_pure
from eqsat_layout.tir.structural import changed_loop, mapped_body, nodes_of, primfunc_pass, structural_map, substitute


def branch_on_unsafe_selects() -> Any:
    """A pass."""
    return primfunc_pass("BranchOnUnsafeSelects", _with_branches)


def _with_branches(func: Any) -> Any:
    if not nodes_of(func.body, tirx.Select):
        return func
    known = _Ranges(func.body)

    def on_select(select: Any) -> Any:
        condition = select.condition.value if isinstance(select.condition, tirx.Broadcast) else select.condition
        is_one = str(condition.ty.dtype) == "bool"  # not a vector of conditions
        if not is_one or (known.is_safe(select.true_value) and known.is_safe(select.false_value)):
            return select
        return tirx.if_then_else(condition, select.true_value, select.false_value)

    return mapped_body(func, (tirx.Select, on_select))


def select_in_lanes() -> Any:
    """A pass, before loops become vectors."""
    return primfunc_pass("SelectInLanes", _with_selects)


def _with_selects(func: Any) -> Any:
    if not any(loop.kind == tirx.ForKind.VECTORIZED for loop in nodes_of(func.body, tirx.For)):
        return func
    known = _Ranges(func.body)

    def on_loop(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return loop

        def on_call(call: Any) -> Any:
            if not is_choice(call) or not depends_on(call.args[0], loop.loop_var):
                return call
            condition = _of_all_lanes(call.args[0], loop)
            if not depends_on(condition, loop.loop_var):
                return tirx.if_then_else(condition, *call.args[1:])
            return tirx.Select(*call.args) if all(map(known.is_safe, call.args[1:])) else call

        body = structural_map(loop.body, (ir.Call, on_call))
        return loop if body.same_as(loop.body) else changed_loop(loop, body=body)

    return mapped_body(func, (tirx.For, on_loop))


def _of_all_lanes(condition: Any, loop: Any) -> Any:
    """The condition without the lane in comparisons that are the same for all: their truth changes between vectors.

    TVM sees so of ``16 x + lane < 48``, and not of ``48 <= 16 x + lane``.
    """
    var, lanes = loop.loop_var, as_int(loop.extent)
    if lanes is None or as_int(loop.min) != 0:
        return condition
    analyzer = tvm.sym.Analyzer()

    def on_comparison(comparison: Any) -> Any:
        change = change_of(comparison, var)
        if change is None or as_int(analyzer.simplify(tirx.floormod(change.place, lanes))) != 0:
            return comparison
        return substitute(comparison, {var: tirx.const(0, var.ty.dtype)})

    return structural_map(condition, *((kind, on_comparison) for kind in COMPARISONS))


class _Ranges:
    """What is known of the variables of all loops."""

    def __init__(self, body: Any) -> None:
        self._analyzer = tvm.sym.Analyzer()
        extents: dict[Any, int] = {}
        for loop in nodes_of(body, tirx.For):
            first, extent = as_int(loop.min), as_int(loop.extent)
            if first == 0 and extent is not None:
                extents[loop.loop_var] = max(extent, extents.get(loop.loop_var, 0))
        for var, extent in extents.items():
            self._analyzer.bind(var, ir.Range(0, extent))

    def is_safe(self, value: Any) -> bool:
        """It can be computed whatever the condition is."""
        return all(map(is_pure, nodes_of(value, ir.Call))) and all(map(self._is_inside, nodes_of(value, ir.TensorLoad)))

    def _is_inside(self, load: Any) -> bool:
        return all(
            self._is_below(index, as_int(size)) for index, size in zip(load.indices, load.source.shape, strict=True)
        )

    def _is_below(self, index: Any, size: int | None) -> bool:
        if isinstance(index, tirx.Ramp):
            last = index.base + index.stride * (index.lanes - 1)
            return self._is_below(index.base, size) and self._is_below(last, size)
        if size is None or not _is_number(index):
            return False
        bound = self._analyzer.const_int_bound(index)
        return bool(bound.min_value >= 0 and bound.max_value < size)


def _is_number(index: Any) -> bool:
    return str(index.ty.dtype) in ("int32", "int64")
