"""Zero padding left to the sampler: beyond the rows and columns of an image a read gives 0.

In: nests whose values ask whether they are inside before they read an image. Out: the same without those conditions
that fail only beyond the ends of rows or of columns that no other axis shares.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.targets.gpu.kernels.nests import Nest
from eqsat_layout.targets.gpu.kernels.vectors import is_image
from eqsat_layout.targets.opencl.images import first_column
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import structural_map


def without_needless_guards(nests: Sequence[Nest]) -> list[Nest]:
    """For devices that clamp to zero."""

    def mapped(store: Any) -> Any:
        return tirx.BufferStore(
            store.buffer, structural_map(store.value, (ir.Call, _less_guarded)), list(store.indices)
        )

    return [replace(nest, stores=tuple(map(mapped, nest.stores))) for nest in nests]


def _less_guarded(call: Any) -> Any:
    """The read under those conditions alone that the sampler does not take over."""
    if not is_choice(call):
        return call
    condition, inside, outside = call.args
    is_zero = isinstance(outside, tirx.FloatImm) and float(outside.value) == 0.0
    if not is_zero or not isinstance(inside, ir.expr.TensorLoad) or not is_image(inside.source):
        return call
    ends = [(inside.indices[axis], as_int(inside.source.ty.shape[axis])) for axis in _axes_alone(inside.source)]
    asked = list(_conditions(condition))
    left = [one for one in asked if not any(_is_beyond(one, index, extent) for index, extent in ends)]
    if not left:
        return inside
    if len(left) == len(asked):
        return call
    return ir.Call(call.op, [functools.reduce(tirx.And, left), inside, outside], attrs=call.attrs, ret_ty=call.ty)


def _axes_alone(buffer: Any) -> Iterator[int]:
    """The axis that rows are, and the one that columns are if no other is among them."""
    shape = list(buffer.ty.shape)
    column = first_column(str(buffer.ty.storage_scope), len(shape))
    yield column - 1
    wide = [axis for axis in range(column, len(shape) - 1) if as_int(shape[axis]) != 1]
    if len(wide) == 1:
        yield wide[0]


def _conditions(condition: Any) -> Iterator[Any]:
    if isinstance(condition, tirx.And):
        yield from _conditions(condition.a)
        yield from _conditions(condition.b)
    else:
        yield condition


def _is_beyond(condition: Any, index: Any, extent: int | None) -> bool:
    """Where ``condition`` does not hold, ``index`` is below 0 or not below ``extent``."""
    bound = _bound(condition)
    if bound is None or extent is None:
        return False
    value, least, most = bound
    shift = as_int(tvm.sym.Analyzer().simplify(index - value))
    if shift is None:
        return False
    return (least is not None and least + shift <= 0) or (most is not None and most + shift >= extent - 1)


def _bound(condition: Any) -> tuple[Any, int | None, int | None] | None:
    """``value >= least`` or ``value <= most``."""
    if not isinstance(condition, tirx.LT | tirx.LE | tirx.GT | tirx.GE):
        return None
    a, b = condition.a, condition.b
    if isinstance(condition, tirx.GT | tirx.GE):
        a, b = b, a
    strict = isinstance(condition, tirx.LT | tirx.GT)
    low, high = as_int(a), as_int(b)
    if low is not None:
        return b, low + strict, None
    return None if high is None else (a, None, high - strict)
