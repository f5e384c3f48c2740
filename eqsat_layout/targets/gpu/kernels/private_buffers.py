"""Buffers that each iteration of a loop fills anew: memory of its own, so that iterations have nothing in common.

In: buffers that a function allocates, and its statements without blocks. Out: those that stay, and the statements with
the others inside of their loops. So a sum that runs along each row in one accumulator has rows that may run at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.kernels.independent_loops import does_more_than_store
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import changed_loop, is_one_of, nodes_of, structural_map

_MOST: Final = 256
"""Elements that a work item has room for (assumed)."""


def with_private_buffers(allocations: Sequence[Any], statements: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The allocations that are left, and the statements."""
    left, made = list[Any](), list(statements)
    for allocation in allocations:
        buffer = allocation.buffer
        users = [place for place, one in enumerate(made) if _touches(one, buffer)]
        own = _inside(made[users[0]], buffer) if len(users) == 1 and _elements(buffer) <= _MOST else None
        if own is None or does_more_than_store(made[users[0]]):
            left.append(allocation)
        else:
            made[users[0]] = own
    return left, made


def with_local_buffers(statement: Any) -> Any:
    """The statement of a kernel, in which no buffer is allocated in the device's memory: there is no code for that."""
    for one in nodes_of(statement, tirx.AllocBuffer):
        buffer = one.buffer
        if str(buffer.scope()) != GLOBAL:
            continue
        if _elements(buffer) > _MOST:
            raise Refused(f"the buffer {buffer.name}, allocated in a loop, has more than {_MOST} elements")
        statement = _with(statement, buffer, _local(buffer))
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
        new = _local(buffer)
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


def _with(statement: Any, old: Any, new: Any) -> Any:
    """The statement with another buffer."""
    return structural_map(
        statement,
        (tvm.ir.TensorLoad, lambda load: tirx.BufferLoad(new, load.indices) if load.source.same_as(old) else load),
        (
            tirx.BufferStore,
            lambda one: tirx.BufferStore(new, one.value, one.indices) if one.buffer.same_as(old) else one,
        ),
        (tirx.AllocBuffer, lambda one: tirx.AllocBuffer(new) if one.buffer.same_as(old) else one),
    )


def _touches(node: Any, buffer: Any) -> bool:
    used = [store.buffer for store in nodes_of(node, tirx.BufferStore)]
    return is_one_of(buffer, [*used, *(load.source for load in nodes_of(node, tvm.ir.TensorLoad))])


def _elements(buffer: Any) -> float:
    extents = [as_int(extent) for extent in buffer.ty.shape]
    return math.prod(math.inf if extent is None else extent for extent in extents)
