"""Reductions over planes of any width: height and width of their results are one axis.

In: a PrimFunc. Out: one over tensors whose planes are rows, and the way back. Vectors run on from one row of a plane to
the next then: of a 1x1 window over 7x7 places there are 49, not 7 of 7 each. So do the places of a window of several
rows and one column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import any_tile_cycles
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.block_facts import runs_axes_in_loops
from eqsat_layout.targets.schedules.stages import Stage, has_reduction, new_schedule, stages_of
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import (
    accesses_of,
    block_of,
    function_over,
    over_params,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.tir.structural import structural_map, substitute

_AXES_OF_PLANE = 2
_GAIN = 0.95  # of the cycles of rows, that those of planes must stay below
_GAIN_OF_WINDOWS = 0.9  # of windows of several rows: tiles of several rows meet lines of the cache again


@dataclass(frozen=True)
class Planes:
    """``func`` over planes that are rows. ``params``: those of the original by number, where they differ."""

    func: Any
    params: dict[int, Any]

    def restored(self, func: Any) -> Any:
        """``func``, which is :attr:`func` scheduled, over the original's parameters.

        A plane is its first row, run on into the others: they lie one after another.
        """
        changed = [(func.params[number], old) for number, old in self.params.items()]

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            for new, old in changed:
                if buffer.same_as(new):
                    *outer, at = indices
                    first = tirx.const(0, str(at.ty.dtype).partition("x")[0])  # of a vector, too
                    return old, [*outer, first, at]
            return buffer, indices

        def on_region(region: Any) -> Any:
            for new, old in changed:
                if region.source.same_as(new):
                    *outer, _ = region.region
                    shape = old.ty.shape[-2:]
                    whole = [ir.Range.from_min_extent(tirx.const(0, size.ty.dtype), size) for size in shape]
                    return tirx.BufferRegion(old, [*outer, *whole])
            return region

        body = structural_map(with_accesses(func.body, place), (ir.TensorRegion, on_region))
        return over_params(func, body, self.params)


def planes_as_rows(func: Any, machine: CpuMachine) -> Planes:
    """Refused where there is no such reduction, or its vectors are no better so."""
    if not has_reduction(func):
        raise Refused("no reduction")
    stages = stages_of(new_schedule(func))
    sums = [stage for stage in stages if stage.simple and stage.is_plain and stage.is_reduction]
    if len(sums) != 1:
        raise Refused("not one reduction")
    made = _Merger(func, sums[0]).merged()
    before = any_tile_cycles(sums[0], machine)
    after = next(stage for stage in stages_of(new_schedule(made.func)) if stage.name == sums[0].name)
    taken = any_tile_cycles(after, machine)
    gain = _GAIN_OF_WINDOWS if sums[0].has_window else _GAIN
    if taken is None or (before is not None and taken > gain * before):
        raise Refused("rows are as good")
    return made


@dataclass
class _Merger:
    """``stage``: the reduction, whose last two axes of the result become one."""

    func: Any
    stage: Stage
    rows: dict[Any, Any] = field(default_factory=dict)
    """By buffer the one whose planes are rows."""
    width: int = 1

    def merged(self) -> Planes:
        if len(self.stage.spatial) < 3 or any(axis.extent in (None, 1) for axis in self.stage.spatial[-2:]):
            raise Refused("no planes")
        statements = statements_of(self.func)
        self.width = self.stage.spatial[-1].extent or 1
        self._find([block_of(statement) for statement in statements])
        over_rows = [self._over_rows(statement) for statement in statements]
        allocated = [self.rows.get(buffer, buffer) for buffer in self.func.body.block.alloc_buffers]
        params = [self.rows.get(param, param) for param in self.func.params]
        func = function_over(self.func, over_rows, allocated, params)
        return Planes(func, {n: old for n, old in enumerate(self.func.params) if old in self.rows})

    def _find(self, blocks: Sequence[Any]) -> None:
        """The buffers whose planes are read or written by two axes: those of the reduction, and what these are made of
        or made into, element by element."""
        found: set[Any] = {self.stage.write.buffer}
        places = [axis.var for axis in self.stage.spatial[-2:]]
        for load in self.stage.loads:
            if any(load.uses(var) for var in places):
                found.add(load.buffer)
        for block in (*blocks, *reversed(blocks)):
            accesses = accesses_of(block)
            if str(block.name_hint) != self.stage.name and any(buffer in found for buffer, _ in accesses):
                found |= {buffer for buffer, indices in accesses if self._is_plane(block, buffer, indices)}
        for buffer in found:
            sizes = list(buffer.ty.shape)
            height = as_int(sizes[-2]) if len(sizes) > 1 else None
            if height is None or as_int(sizes[-1]) != self.width:
                raise Refused("a plane of another width")
            shape = [*sizes[:-2], tirx.const(height * self.width, sizes[-1].ty.dtype)]
            self.rows[buffer] = tirx.decl_buffer(shape, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None)

    def _is_plane(self, block: Any, buffer: Any, indices: Sequence[Any]) -> bool:
        """The block's last two axes number the places of a plane."""
        axes = [axis.var for axis in block.iter_vars]
        return (
            len(axes) > 1
            and len(indices) > 1
            and as_int(buffer.ty.shape[-1]) == self.width
            and depends_on(indices[-1], axes[-1])
            and depends_on(indices[-2], axes[-2])
        )

    def _over_rows(self, statement: Any) -> Any:
        """Its block over the new buffers; over one axis of places too, where nothing is to be known of each."""
        block = block_of(statement)
        own = [axis for axis in block.iter_vars if int(axis.iter_type) != tirx.IterVar.CommReduce]
        store, init = store_of(block), block.init
        if not any(buffer in self.rows for buffer, _ in accesses_of(block)):
            return statement
        if not runs_axes_in_loops(statement, block, len(block.iter_vars)):
            raise Refused("a part of a plane")
        body = with_accesses(store, self._place)
        iters = list(block.iter_vars)
        if not self._is_free(block, own[-2:]):
            if block.name_hint == self.stage.name:
                raise Refused("rows of a plane that are told apart")
            return storing_block(iters, block.name_hint, body, init, block.annotations)
        height, width = own[-2:]
        sizes = int(height.dom.extent), int(width.dom.extent)
        dtype = str(width.var.ty.dtype)
        domain = ir.Range(tirx.const(0, dtype), tirx.const(math.prod(sizes), dtype))
        place = tirx.IterVar(domain, ir.Var("place", dtype), width.iter_type)
        start = tirx.const(0, dtype)
        at = iters.index(height)
        iters[at : at + 2] = [place]
        values = {height.var: start, width.var: place.var}  # y rows and x further is as far as x + width y
        body = substitute(body, values)
        init = None if init is None else substitute(with_accesses(init, self._place), values)
        return storing_block(iters, block.name_hint, body, init, block.annotations)

    def _place(self, buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        if buffer not in self.rows:
            return buffer, indices
        *outer, y, x = indices
        return self.rows[buffer], [*outer, y * tirx.const(self.width, y.ty.dtype) + x]

    def _is_free(self, block: Any, axes: Sequence[Any]) -> bool:
        """Both axes only number places, in steps of one: y rows on is as far as the width times y places."""
        if len(axes) < _AXES_OF_PLANE or int(axes[-1].dom.extent) != self.width:
            return False
        y, x = (axis.var for axis in axes)
        store = store_of(block)
        analyzer = analyzer_of(axis for axis in block.iter_vars if as_int(axis.dom.extent) == 1)
        for buffer, indices in accesses_of(block):
            if buffer not in self.rows:
                if any(depends_on(index, var) for index in indices for var in (x, y)):
                    return False
                continue
            *outer, row, column = indices
            linear = tvm.sym.detect_linear_equation(analyzer.simplify(row), [y])
            is_step = bool(linear) and as_int(linear[0]) == 1 and not depends_on(row, x)
            if (
                not is_step
                or not analyzer.simplify(column).same_as(x)
                or any(depends_on(i, v) for i in outer for v in (x, y))
            ):
                return False
        used = structural_map(store.value, (ir.TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))))
        return not any(depends_on(used, var) for var in (x, y))  # conditions, values
