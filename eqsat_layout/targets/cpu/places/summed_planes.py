"""Reductions of whole planes, and what is done with the planes then: height and width are one axis.

In: a PrimFunc. Out: one over tensors whose planes are rows, and the way back. A channel that is normalised over its
image is a row that stays in the first cache then, and vectors run on from one row of the image to the next.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.places.planes import Planes
from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.targets.schedules.block_facts import is_one_to_one
from eqsat_layout.targets.schedules.stages import has_reduction
from eqsat_layout.tir.blocks import (
    accesses_of,
    block_of,
    function_over,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.tir.structural import structural_map, substitute


def summed_planes_as_rows(func: Any) -> Planes:
    """Refused where no plane is summed and read again, or one is read otherwise than whole."""
    if not has_reduction(func):
        raise Refused("no reduction")
    statements = statements_of(func)
    blocks = [block_of(statement) for statement in statements]
    sums = [block for block in blocks if block.init is not None]
    sizes = {tuple(as_int(axis.dom.extent) for axis in _reduced(block)[-2:]) for block in sums}
    size = sizes.pop() if len(sizes) == 1 else ()
    if len(size) != 2 or None in size or 1 in size:
        raise Refused("no sums of planes of one size")
    found = {id(block): _plane(block, size) for block in blocks}
    buffers = {buffer for block in blocks if found[id(block)] for buffer in _read_by(block, found[id(block)])}
    again = [block for block in blocks if any(buffer in buffers for buffer, _ in accesses_of(block))]
    if len(again) < 2 or not any(found[id(block)] for block in sums):
        raise Refused("planes are read once")
    rows = {buffer: _row(buffer) for buffer in buffers}
    made = [_over_rows(one, found[id(block)], rows) for one, block in zip(statements, blocks, strict=True)]
    allocated = [rows.get(buffer, buffer) for buffer in func.body.block.alloc_buffers]
    params = [rows.get(param, param) for param in func.params]
    return Planes(
        function_over(func, made, allocated, params), {n: old for n, old in enumerate(func.params) if old in rows}
    )


def _reduced(block: Any) -> list[Any]:
    return [axis for axis in block.iter_vars if int(axis.iter_type) == tirx.IterVar.CommReduce]


def _plane(block: Any, size: tuple[Any, ...]) -> tuple[Any, ...]:
    """The block's last two axes, where they are those of planes of this ``size``; else nothing."""
    pair = tuple(block.iter_vars[-2:])
    is_one_kind = len({int(axis.iter_type) for axis in pair}) == 1
    return pair if is_one_kind and tuple(as_int(axis.dom.extent) for axis in pair) == size else ()


def _read_by(block: Any, plane: tuple[Any, ...]) -> list[Any]:
    """The buffers that a block reads or writes place by place; refused where it does more with a place."""
    y, x = (axis.var for axis in plane)
    found: list[Any] = []
    for buffer, indices in accesses_of(block):
        if not any(depends_on(index, var) for index in indices for var in (y, x)):
            continue
        *outer, row, column = indices if len(indices) > 1 else (None, None)
        size = [as_int(extent) for extent in buffer.ty.shape[-2:]]
        is_whole = size == [as_int(axis.dom.extent) for axis in plane] and row.same_as(y) and column.same_as(x)
        if not is_whole or any(depends_on(index, var) for index in outer for var in (y, x)):
            raise Refused("a part of a plane, or a place elsewhere")
        found.append(buffer)
    used = structural_map(store_of(block).value, (ir.TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))))
    if any(depends_on(used, var) for var in (y, x)):
        raise Refused("places that are told apart")
    return found


def _row(buffer: Any) -> Any:
    *outer, height, width = buffer.ty.shape
    length = tirx.const(int(height) * int(width), width.ty.dtype)
    return tirx.decl_buffer([*outer, length], buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None)


def _over_rows(statement: Any, plane: tuple[Any, ...], rows: dict[Any, Any]) -> Any:
    """Its block over rows, in one axis of places."""
    block = block_of(statement)
    if not any(buffer in rows for buffer, _ in accesses_of(block)):
        return statement
    if not plane or not is_one_to_one(statement, block, len(block.iter_vars)):
        raise Refused("a part of a plane")
    y, x = plane
    dtype = str(x.var.ty.dtype)
    length = tirx.const(math.prod(int(axis.dom.extent) for axis in plane), dtype)
    place = tirx.IterVar(ir.Range(tirx.const(0, dtype), length), ir.Var("place", dtype), x.iter_type)

    def row(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
        return (rows[buffer], [*indices[:-2], indices[-1]]) if buffer in rows else (buffer, indices)

    values = {x.var: place.var}  # of the rows' indices, only this one is left
    body = substitute(with_accesses(store_of(block), row), values)
    init = None if block.init is None else substitute(with_accesses(block.init, row), values)
    return storing_block([*block.iter_vars[:-2], place], block.name_hint, body, init, block.annotations)
