"""A part of a kernel of symbolic sizes: so many elements of each of its free axes, as a kernel of its own.

In: an unscheduled PrimFunc, its free axes, and how many elements of each. Out: a PrimFunc over as many, to be scheduled
like any other; and what its schedule does as a statement over the buffers of the whole, from some element on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Var

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.symbolic.free_axes import FreeAxis
from eqsat_layout.tir.blocks import (
    block_of,
    function_over,
    statement_over,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.tir.structural import nodes_of, substitute


@dataclass(frozen=True)
class Span:
    """``size`` elements of an axis, from ``first`` on. ``is_clamped``: those beyond the end are the last one again."""

    axis: FreeAxis
    size: int
    first: Any
    is_clamped: bool = False

    def indices(self, place: Any) -> list[Any]:
        """In the whole, of an element at this place of the span, or of a vector from there on.

        Axes that are taken as one lie in one row, so a vector may reach beyond the end of the last one.
        """
        if isinstance(place, tirx.Ramp) and self.axis.count > 1:
            if self.is_clamped:
                raise Refused("a vector that is clamped at the end of several axes")
            *outer, last = self.axis.indices(self.first + place.base)
            return [*outer, tirx.Ramp(last, place.stride, place.lanes)]
        number = self.first + place
        if self.is_clamped:
            number = tirx.min(number, self.axis.extent - 1)
        return self.axis.indices(number)


def part_of(whole: Any, spans: Sequence[Span]) -> Any:
    """``whole`` for the elements of ``spans``, counted from 0. What else it needs to know are further parameters."""
    cutter = _Cutter(spans)
    params = [cutter.buffer(param) if _is_buffer(param) else param for param in whole.params]
    allocated = [cutter.buffer(buffer) for buffer in whole.body.block.alloc_buffers]
    statements = [cutter.block(block_of(statement)) for statement in statements_of(whole)]
    body = function_over(whole, statements, allocated, params).body
    sizes = [extent for param in whole.params if _is_buffer(param) for extent in param.ty.shape]
    known = {extent for param in params if _is_buffer(param) for extent in param.ty.shape} | set(params)
    used = set(nodes_of(body, Var))
    outside = [var for given in (*(span.first for span in spans), *sizes) for var in nodes_of(given, Var)]
    told = [var for var in dict.fromkeys(outside) if var in used and var not in known]
    return tirx.PrimFunc([*params, *told], body, ret_type=whole.ret_type, attrs=whole.attrs)


def in_whole(part: Any, whole: Any, spans: Sequence[Span]) -> Any:
    """What a scheduled ``part`` does, as a statement over the buffers of ``whole``.

    Refused where it reads a result again: parts may overlap, so that another one changes it in between.
    """
    before = {own: param for own, param in zip(part.params, whole.params, strict=False) if _is_buffer(own)}
    written = {store.buffer for store in nodes_of(part.body, tirx.BufferStore)}
    if any(load.source in written and load.source in before for load in nodes_of(part.body, tvm.ir.TensorLoad)):
        raise Refused("results are read again while they are made")

    def placed(own: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        buffer, found = before[own], iter(indices)
        by_dim = {span.axis.dims[buffer]: span for span in spans if buffer in span.axis.dims}
        moved: list[Any] = []
        while len(moved) < len(buffer.ty.shape):
            span, index = by_dim.get(len(moved)), next(found)
            moved += [index] if span is None else span.indices(index)
        return buffer, moved

    return statement_over(part, placed, before)


class _Cutter:
    """Buffers and blocks of a part."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._made: dict[Any, Any] = {}

    def buffer(self, buffer: Any) -> Any:
        """The same with fewer elements."""
        if buffer not in self._made:
            shape = list(buffer.ty.shape)
            for span, dim in self._last_first(buffer, lambda axis: axis.dims):
                shape[dim : dim + span.axis.count] = [tirx.IntImm(str(shape[dim].ty.dtype), span.size)]
            self._made[buffer] = tirx.decl_buffer(
                shape, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None
            )
        return self._made[buffer]

    def block(self, block: Any) -> Any:
        """The block over fewer elements, under its loops."""
        name = str(block.name_hint)
        iters = [tirx.IterVar(one.dom, Var(one.var.name, one.var.ty), one.iter_type) for one in block.iter_vars]
        values = {old.var: new.var for old, new in zip(block.iter_vars, iters, strict=True)}
        places = dict(values)
        for span, first in self._last_first(name, lambda axis: axis.iters):
            own = iters[first]
            zero, extent = (tirx.IntImm(str(own.var.ty.dtype), number) for number in (0, span.size))
            iters[first : first + span.axis.count] = [tirx.IterVar(tvm.ir.Range(zero, extent), own.var, own.iter_type)]
            values[block.iter_vars[first].var] = span.indices(own.var)[0]

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            for span, dim in self._last_first(buffer, lambda axis: axis.dims):
                indices[dim : dim + span.axis.count] = [places[indices[dim]]]
            return self.buffer(buffer), indices

        def moved(statement: Any) -> Any:
            return substitute(with_accesses(statement, place), values)

        init = None if block.init is None else moved(block.init)
        return storing_block(iters, name, moved(store_of(block)), init, block.annotations)

    def _last_first(self, of: Any, places: Callable[[FreeAxis], Mapping[Any, int]]) -> list[tuple[Span, int]]:
        """The spans along axes that a buffer or a block has, and where: a change there moves none of the next ones."""
        own = [(span, places(span.axis)[of]) for span in self._spans if of in places(span.axis)]
        return sorted(own, key=lambda pair: pair[1], reverse=True)


def _is_buffer(param: Any) -> bool:
    return hasattr(param.ty, "shape")
