"""Splits loops where a condition on the loop variable changes.

In: a PrimFunc of loops over flat memory. Out: the same, with an innermost loop that contains such conditions as several
loops without: borders, parts of a concat, halves of a triangle. LLVM vectorises those; loads under a condition it does
element by element. A loop around it that is to be unrolled is unrolled first, as each of its steps has its own borders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.conditions import COMPARISONS, TruthChange, change_of
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import body_pass, nodes_of, structural_map, substitute

_LEAST: Final = 16
"""Iterations of a loop that is worth it."""
_MOST_PARTS: Final = 8
"""A loop in more parts stays whole: code grows, and each part is short."""


def cut_at_conditions() -> Any:
    """A pass."""
    return body_pass("CutAtConditions", (tirx.For, _cut_any))


def are_cut(conditions: Sequence[Any], var: Any, extent: int) -> bool:
    """A loop of ``extent`` iterations of ``var`` becomes some in which none of ``conditions`` depends on it."""
    changes = [change for condition in conditions for change in _changes(condition, var)]
    return extent >= _LEAST and _bounds(changes, extent) is not None and _are_all(changes, conditions, var)


def _are_cut_unrolled(conditions: Sequence[Any], var: Any, extent: int, around: Any, count: int) -> bool:
    """So it does inside of an unrolled loop of ``count`` iterations of ``around``, if it has any change there."""
    if extent < _LEAST or count > _MOST_PARTS:
        return False
    for number in range(count):
        own = [substitute(condition, {around: tirx.const(number, around.ty.dtype)}) for condition in conditions]
        changes = [change for condition in own for change in _changes(condition, var)]
        if None in {change.number for change in changes} or not _are_all(changes, own, var):
            return False
    return True


def phases_are_cut(stage: Stage) -> bool:
    """Conditions along its last axis are others for each of the few elements of the axis before it (phases), and such
    a loop is cut inside of an unrolled one."""
    if len(stage.axes) < 2:
        return False
    around, last = stage.axes[-2:]
    if around.extent in (None, 1) or last.extent is None:
        return False
    both = [c for c in stage.conditions if depends_on(c, around.var) and depends_on(c, last.var)]
    return bool(both) and _are_cut_unrolled(stage.conditions, last.var, last.extent, around.var, around.extent)


def _are_all(changes: Sequence[TruthChange], conditions: Sequence[Any], var: Any) -> bool:
    """Nothing else in the conditions depends on the variable."""
    return not any(depends_on(_without(condition, changes), var) for condition in conditions)


def _cut_any(loop: Any) -> Any:
    inner, count = loop.body, as_int(loop.extent)
    is_around = isinstance(inner, tirx.For) and loop.kind == tirx.ForKind.UNROLLED
    if (
        count is None
        or not is_around
        or count > _MOST_PARTS
        or as_int(loop.min) != 0
        or not isinstance(inner.body, tirx.BufferStore)
    ):
        return _cut(loop)
    if not any(depends_on(change.place, loop.loop_var) for change in _changes(inner.body.value, inner.loop_var)):
        return loop
    return tirx.SeqStmt([_cut(_iteration(loop, number)) for number in range(count)])


def _iteration(loop: Any, number: int) -> Any:
    """The loop inside of ``loop`` in this iteration, with a variable of its own."""
    inner, at = loop.body, tirx.const(number, loop.loop_var.ty.dtype)
    own = tirx.Var(inner.loop_var.name, inner.loop_var.ty.dtype)
    body = substitute(inner.body, {loop.loop_var: at, inner.loop_var: own})
    return tirx.For(own, inner.min, inner.extent, inner.kind, body, annotations=inner.annotations)


def _cut(loop: Any) -> Any:
    extent = as_int(loop.extent)
    is_plain = loop.kind == tirx.ForKind.SERIAL and as_int(loop.min) == 0 and not loop.annotations
    if not is_plain or extent is None or extent < _LEAST or not isinstance(loop.body, tirx.BufferStore):
        return loop
    changes = _changes(loop.body.value, loop.loop_var)
    bounds = _bounds(changes, extent)
    if bounds is None:
        return loop
    return tirx.SeqStmt([_part(loop, changes, first, end) for first, end in pairwise(bounds)])


def _changes(value: Any, var: Any) -> list[TruthChange]:
    """The comparisons of the variable with what stays the same over the loop."""
    found = (change_of(condition, var) for condition in nodes_of(value, *COMPARISONS))
    return [change for change in found if change is not None]


def _bounds(changes: Sequence[TruthChange], extent: int) -> list[Any] | None:
    """Where parts begin, and the end of the last one; ``None`` where the order of changes is unknown, or many."""
    if not changes:
        return None
    numbers = {change.number for change in changes}
    if None not in numbers:
        inside = sorted(number for number in numbers if number is not None and 0 < number < extent)
        return [0, *inside, extent] if 0 < len(inside) < _MOST_PARTS else None
    place = changes[0].place
    if all(tvm_ffi.structural_equal(change.place, place) for change in changes):
        return [0, tirx.max(tirx.min(place, extent), 0), extent]
    return None


def _part(loop: Any, changes: Sequence[TruthChange], first: Any, end: Any) -> Any:
    """Iterations ``first`` to before ``end``, in which no condition changes, or only one that others were inside of."""

    def truth(change: TruthChange) -> bool:
        is_before = isinstance(first, int) if change.number is None else change.number >= end
        return change.before == is_before

    var = loop.loop_var
    own = tirx.Var(var.name, var.ty.dtype)
    body = substitute(_without(loop.body, changes, truth), {var: own + first})
    size = end - first
    extent = tirx.IntImm(var.ty.dtype, size) if isinstance(size, int) else size
    return _cut(tirx.For(own, tirx.IntImm(var.ty.dtype, 0), extent, loop.kind, body))


def _without(node: Any, changes: Sequence[TruthChange], truth: Callable[[TruthChange], bool] = lambda _: True) -> Any:
    """``node`` with the truth of the conditions that change, and the values that they choose."""

    def known(condition: Any) -> Any:
        change = next((one for one in changes if tvm_ffi.structural_equal(one.condition, condition)), None)
        return condition if change is None else tirx.IntImm("bool", truth(change))

    kinds = [(kind, known) for kind in COMPARISONS]
    return structural_map(node, *kinds, (tirx.Select, _chosen), (tvm.ir.Call, _chosen_call))


def _chosen(select: Any) -> Any:
    return _known_choice(select, select.condition, select.true_value, select.false_value)


def _chosen_call(call: Any) -> Any:
    return _known_choice(call, *call.args) if is_choice(call) else call


def _known_choice(choice: Any, condition: Any, then: Any, otherwise: Any) -> Any:
    """The value that a condition chooses, if it is known."""
    truth = as_int(condition)
    return choice if truth is None else then if truth else otherwise
