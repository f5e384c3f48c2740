"""Buffers that each iteration of a loop fills anew: memory of its own, so that iterations have nothing in common.

In: buffers that a function allocates, and its statements without blocks. Out: those that stay, and the statements with
the others inside of their loops. So a sum that runs along each row in one accumulator has rows that may run at once.
Small ones are a work item's own; of large ones the device's memory has a part for each iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.kernels.independent_loops import does_more_than_store, independent_loops
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import changed_loop, is_one_of, nodes_of, structural_map

_MOST: Final = 256
"""Elements that a work item has room for (assumed)."""
_ROOM: Final = 1 << 28
"""Bytes that all iterations may take of the device's memory (assumed)."""


def with_private_buffers(allocations: Sequence[Any], statements: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The allocations that are left, and the statements."""
    left, made = list[Any](), list(statements)
    for allocation in allocations:
        buffer = allocation.buffer
        users = [place for place, one in enumerate(made) if _touches(one, buffer)]
        own = _inside(made[users[0]], buffer) if len(users) == 1 else None
        if own is None or does_more_than_store(made[users[0]]):
            left.append(allocation)
        else:
            made[users[0]] = own
    return left, made


def with_parts_of_iterations(statement: Any) -> tuple[list[Any], Any]:
    """Allocations for large buffers of loops, and the statement with these, where no memory is touched by address."""
    allocations: list[Any] = []
    large = [one for one in nodes_of(statement, tirx.AllocBuffer) if _is_large(one.buffer)]
    if does_more_than_store(statement):
        return [], statement
    loops_in, names_in = nodes_of(statement, tirx.For), nodes_of(statement, tirx.Bind)
    inside = [*(one.loop_var for one in loops_in), *(one.var for one in names_in)]
    for one in large:
        if any(is_one_of(var, inside) for extent in one.buffer.ty.shape for var in nodes_of(extent, tirx.Var)):
            continue  # each iteration has another shape
        loops = list(independent_loops(statement).loops)
        while loops and _bytes(one.buffer) * math.prod(as_int(loop.extent) or SYMBOL_SIZE for loop in loops) > _ROOM:
            statement = _in_order(statement, loops.pop())
        shape = [*(loop.extent for loop in loops), *one.buffer.ty.shape]
        parts = tirx.decl_buffer(shape, one.buffer.ty.dtype, one.buffer.name, layout=None)
        statement = _with(statement, one.buffer, parts, [loop.loop_var - loop.min for loop in loops])
        allocations.append(tirx.AllocBuffer(parts))
    return allocations, statement


def _in_order(statement: Any, loop: Any) -> Any:
    """Its iterations share memory from now on, whatever was said of them."""

    def on_loop(one: Any) -> Any:
        return changed_loop(one, kind=tirx.ForKind.SERIAL) if one.loop_var.same_as(loop.loop_var) else one

    return structural_map(statement, (tirx.For, on_loop))


def with_local_buffers(statement: Any) -> Any:
    """The statement of a kernel, in which no buffer is allocated in the device's memory: there is no code for that."""
    for one in nodes_of(statement, tirx.AllocBuffer):
        if str(one.buffer.scope()) != GLOBAL:
            continue
        if _is_large(one.buffer):
            raise Refused(f"the buffer {one.buffer.name}, allocated in a loop, has more than {_MOST} elements")
        statement = _with(statement, one.buffer, _local(one.buffer))
    return statement


def _inside(statement: Any, buffer: Any) -> Any | None:
    """The loop with the buffer allocated in it or in a loop inside of it, the innermost that fills it anew."""
    if not isinstance(statement, tirx.For) or any(_touches(one, buffer) for one in (statement.min, statement.extent)):
        return None
    body = list(statement.body.seq) if isinstance(statement.body, tirx.SeqStmt) else [statement.body]
    users = [place for place, one in enumerate(body) if _touches(one, buffer)]
    own = _inside(body[users[0]], buffer) if len(users) == 1 else None
    if own is not None:
        body[users[0]] = own
    elif _fills(body[users[0]], buffer):
        new = buffer if _is_large(buffer) else _local(buffer)
        body = [tirx.AllocBuffer(new), *(_with(one, buffer, new) for one in body)]
    else:
        return None
    return changed_loop(statement, body=sequence(body))


def _fills(statement: Any, buffer: Any) -> bool:
    """It stores to every element and reads none."""
    loops: list[Any] = []
    while isinstance(statement, tirx.For):
        loops.append(statement)
        statement = statement.body
    if not isinstance(statement, tirx.BufferStore) or not statement.buffer.same_as(buffer):
        return False
    if any(load.source.same_as(buffer) for load in nodes_of(statement, tvm.ir.TensorLoad)):
        return False
    for index, extent in zip(statement.indices, buffer.ty.shape, strict=True):
        along = [loop for loop in loops if loop.loop_var.same_as(index)]
        loops = [loop for loop in loops if not loop.loop_var.same_as(index)]
        is_all = [_is_whole(loop, extent) for loop in along]
        if not all(is_all) or (not along and not (as_int(extent) == 1 and as_int(index) == 0)):
            return False
    return not loops


def _is_whole(loop: Any, extent: Any) -> bool:
    is_by_one = loop.step is None or as_int(loop.step) == 1
    return is_by_one and as_int(loop.min) == 0 and as_int(loop.extent) == as_int(extent)


def _local(buffer: Any) -> Any:
    """One like it in a work item's own memory."""
    return tirx.decl_buffer(buffer.ty.shape, buffer.ty.dtype, buffer.name, scope="local", layout=None)


def _with(statement: Any, old: Any, new: Any, at: Sequence[Any] = ()) -> Any:
    """The statement with another buffer; ``at``: where the old one lies in it, if it is allocated elsewhere."""

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(new, [*at, *load.indices]) if load.source.same_as(old) else load

    def on_store(one: Any) -> Any:
        return tirx.BufferStore(new, one.value, [*at, *one.indices]) if one.buffer.same_as(old) else one

    def on_allocation(one: Any) -> Any:
        if not one.buffer.same_as(old):
            return one
        return tirx.AllocBuffer(new) if str(new.scope()) == "local" else tirx.Evaluate(tirx.IntImm("int32", 0))

    return structural_map(
        statement,
        (tvm.ir.TensorLoad, on_load),
        (tirx.BufferStore, on_store),
        (tirx.AllocBuffer, on_allocation),
    )


def _touches(node: Any, buffer: Any) -> bool:
    used = [store.buffer for store in nodes_of(node, tirx.BufferStore)]
    return is_one_of(buffer, [*used, *(load.source for load in nodes_of(node, tvm.ir.TensorLoad))])


def _is_large(buffer: Any) -> bool:
    return str(buffer.scope()) == GLOBAL and _elements(buffer) > _MOST


def _bytes(buffer: Any) -> float:
    extents = [as_int(extent) or SYMBOL_SIZE for extent in buffer.ty.shape]
    return math.prod(extents) * -(-int(tvm.DataType(str(buffer.ty.dtype)).bits) // 8)


def _elements(buffer: Any) -> float:
    extents = [as_int(extent) for extent in buffer.ty.shape]
    return math.prod(math.inf if extent is None else extent for extent in extents)
