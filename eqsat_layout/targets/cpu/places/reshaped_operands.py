"""Operands that are read as if they had another shape, as that is what they are.

In: a PrimFunc. Out: one whose operands have the shape in which it reads them, and the way back. Where a reshape has
become part of its reader, indices are quotients and remainders, by which vectors are taken apart: a group of channels
of 56 x 56 was normalised seven times as slowly as one of 64 x 64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.places.box import with_running_on
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import (
    accesses_of,
    block_of,
    function_over,
    over_params,
    stage_over,
    statements_of,
    with_accesses,
)
from eqsat_layout.tir.structural import nodes_of, structural_map


@dataclass(frozen=True)
class ReshapedOperands:
    """``func`` over other shapes. ``params``: those of the original by number, where they differ."""

    func: Any
    params: dict[int, Any]

    def restored(self, func: Any) -> Any:
        """``func``, which is :attr:`func` scheduled, over the original's parameters: elements of their first row, which
        runs on into the others."""
        olds = {func.params[number]: old for number, old in self.params.items()}

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            old = olds.get(buffer)
            if old is None:
                return buffer, indices
            zero = tirx.const(0, old.ty.shape[-1].ty.dtype)
            return old, [*(zero for _ in old.ty.shape[1:]), StageAccess(buffer, tuple(indices)).place]

        def on_region(region: Any) -> Any:
            old = olds.get(region.source)
            if old is None:
                return region
            return tirx.BufferRegion(
                old, [ir.Range.from_min_extent(tirx.const(0, n.ty.dtype), n) for n in old.ty.shape]
            )

        body = structural_map(with_accesses(func.body, place), (ir.TensorRegion, on_region))
        return with_running_on(over_params(func, body, self.params), self.params)


def reshaped_operands(func: Any) -> ReshapedOperands:
    """Refused where there are none."""
    statements = statements_of(func)
    blocks = [block_of(statement) for statement in statements]
    read: dict[Any, list[tuple[Any, list[Any]]]] = {}
    for block in blocks:
        for buffer, indices in accesses_of(block):
            if buffer in func.params:
                read.setdefault(buffer, []).append((block, indices))
    reshaped = {
        buffer: made
        for buffer, accesses in read.items()
        if any(_has_quotients(index) for _, indices in accesses for index in indices)
        and (made := _reshaped(buffer, accesses)) is not None
    }
    if not reshaped:
        raise Refused("no operand is read in another shape")

    def over(block: Any) -> Any:
        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            if buffer not in reshaped:
                return buffer, indices
            return reshaped[buffer], _places(buffer, block, indices)[1]

        return stage_over(block, place)

    made = [over(block) if _reads(block, reshaped) else one for one, block in zip(statements, blocks, strict=True)]
    params = [reshaped.get(param, param) for param in func.params]
    whole = function_over(func, made, func.body.block.alloc_buffers, params)
    return ReshapedOperands(whole, {n: old for n, old in enumerate(func.params) if old in reshaped})


def _reads(block: Any, buffers: Any) -> bool:
    return any(buffer in buffers for buffer, _ in accesses_of(block))


def _has_quotients(index: Any) -> bool:
    return bool(nodes_of(index, tirx.FloorDiv, tirx.FloorMod))


def _reshaped(buffer: Any, accesses: Sequence[tuple[Any, list[Any]]]) -> Any:
    """The buffer in the one shape in which all of these read it; ``None`` where there is none."""
    if any(as_int(extent) is None for extent in buffer.ty.shape):
        return None
    shapes = {tuple(_places(buffer, block, indices)[0]) for block, indices in accesses}
    shape = shapes.pop() if len(shapes) == 1 else ()
    if not shape or math.prod(shape) != math.prod(map(int, buffer.ty.shape)):
        return None
    extents = [tirx.const(extent, "int64") for extent in shape]
    return tirx.decl_buffer(extents, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None)


def _places(buffer: Any, block: Any, indices: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """The shape in which an element is at axes of the block, and these axes; nothing where there is no such."""
    ranges = analyzer_of(block.iter_vars)
    axes = {axis.var: as_int(axis.dom.extent) for axis in block.iter_vars}
    offset = ranges.simplify(StageAccess(buffer, tuple(indices)).place)
    moving = [var for var in dict.fromkeys(nodes_of(offset, ir.Var)) if axes.get(var) != 1]
    if _has_quotients(offset) or not all(axes.get(var) for var in moving):
        return [], []
    steps = sym.detect_linear_equation(offset, moving)
    known = [as_int(step) for step in steps] if steps else [None]
    if None in known or known[-1] != 0:
        return [], []
    order = sorted(zip(known, moving, strict=False), key=lambda own: -(own[0] or 0))
    expected = 1
    for step, var in reversed(order):
        if step != expected:
            return [], []
        expected *= axes[var] or 1
    return [axes[var] or 1 for _, var in order], [var for _, var in order]
