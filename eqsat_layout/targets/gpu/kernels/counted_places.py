"""What a loop keeps goes to the next free place: each iteration counts those before it that keep something, and all run
at once.

In: a loop whose body, under a condition, stores at a place that a counter in memory says, and adds one to that. Out: a
loop whose iterations can't meet, and one that counts. An iteration looks at the conditions of all before it, as sorts
compare all pairs: much work, but for all work items, where a loop in order waits for memory each time. So
``get_valid_counts`` keeps boxes.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.independent_loops import APART, does_more_than_store
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import changed_loop, is_one_of, let_values, nodes_of, structural_map, substitute

_MOST: Final = 1 << 16
"""Iterations of which each looking at all before it takes less time than one after the other (assumed)."""
PARTS: Final = 32
"""Of a count, each by a work item; one adds them up."""
_SERIAL: Final = tirx.ForKind.SERIAL


def counted_places(loop: Any) -> list[Any]:
    """Two loops, in this order; refused for any other loop."""
    body = loop.body if isinstance(loop, tirx.For) else None
    if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        raise Refused("it is no loop under a condition")
    if does_more_than_store(loop) or nodes_of(loop, tirx.AllocBuffer, tirx.While, tirx.AttrStmt):
        raise Refused("it has memory of its own")
    if (as_int(loop.extent) or 0) > _MOST:
        raise Refused("it has too many iterations")
    *kept, last = body.then_case.seq if isinstance(body.then_case, tirx.SeqStmt) else [body.then_case]
    counter = _counted(last, loop)
    stores = [store for one in kept for store in nodes_of(one, tirx.BufferStore)]
    written = [counter.source, *(store.buffer for store in stores)]
    if not stores or any(store.buffer.same_as(counter.source) for store in stores):
        raise Refused("it counts only")
    bound = let_values(body)
    for store in stores:
        if not any(_is(counter, substitute(index, bound)) for index in store.indices):
            raise Refused("iterations may store at one place")
    number = tirx.decl_buffer([1], counter.ty.dtype, f"{counter.source.name}_before", scope="local", layout=None)
    mine = tirx.BufferLoad(number, [0])
    placed = structural_map(
        sequence(kept),
        (tvm.ir.TensorLoad, lambda load: mine if _is(counter, load) else load),
    )
    for load in (
        one for part in (body.condition, loop.min, loop.extent, placed) for one in nodes_of(part, tvm.ir.TensorLoad)
    ):
        if is_one_of(load.source, written):
            raise Refused("it reads what it writes")
    earlier = tirx.Var(f"{loop.loop_var.name}_before", loop.loop_var.ty.dtype)
    one_more = tirx.BufferStore(number, mine + tirx.IntImm(counter.ty.dtype, 1), [0])
    is_kept = substitute(body.condition, {loop.loop_var: earlier})
    before = tirx.For(earlier, loop.min, loop.loop_var - loop.min, _SERIAL, tirx.IfThenElse(is_kept, one_more, None))
    counting = [tirx.AllocBuffer(number), tirx.BufferStore(number, counter, [0]), before, placed]
    own = tirx.IfThenElse(body.condition, tirx.SeqStmt(counting), None)
    at_once = changed_loop(loop, kind=tirx.ForKind.PARALLEL, annotations={APART: True}, body=own)
    turn = tirx.Var(loop.loop_var.name, loop.loop_var.ty.dtype)
    counted = tirx.IfThenElse(substitute(body.condition, {loop.loop_var: turn}), last, None)
    return [at_once, changed_loop(loop, loop_var=turn, kind=_SERIAL, body=counted)]


def counted_in_parts(loop: Any) -> list[Any]:
    """A loop that only counts, as :func:`counted_places` makes it: memory for parts, their counts and their sum."""
    counter, dtype = loop.body.then_case.value.a, loop.loop_var.ty.dtype
    zero, count = tirx.IntImm(dtype, 0), tirx.IntImm(dtype, PARTS)
    parts = tirx.decl_buffer([PARTS], counter.ty.dtype, f"{counter.source.name}_parts", layout=None)
    part, turn, other = (tirx.Var(name, dtype) for name in ("part", "turn", "part"))
    place = turn * count + part
    here = substitute(loop.body.condition, {loop.loop_var: loop.min + place})
    more = tirx.BufferStore(parts, tirx.BufferLoad(parts, [part]) + tirx.IntImm(counter.ty.dtype, 1), [part])
    step = tirx.IfThenElse(place < loop.extent, tirx.IfThenElse(here, more, None), None)
    turns = tirx.floordiv(loop.extent + count - 1, count)
    own = [
        tirx.BufferStore(parts, tirx.IntImm(counter.ty.dtype, 0), [part]),
        tirx.For(turn, zero, turns, _SERIAL, step),
    ]
    total = tirx.BufferStore(counter.source, counter + tirx.BufferLoad(parts, [other]), list(counter.indices))
    return [
        tirx.AllocBuffer(parts),
        tirx.For(part, zero, count, tirx.ForKind.PARALLEL, tirx.SeqStmt(own)),
        tirx.For(other, zero, count, _SERIAL, total),
    ]


def _counted(store: Any, loop: Any) -> Any:
    """The load of a counter, of an integer dtype, that the statement adds one to."""
    value = store.value if isinstance(store, tirx.BufferStore) else None
    if not isinstance(value, tirx.Add) or as_int(value.b) != 1 or not isinstance(value.a, tvm.ir.TensorLoad):
        raise Refused("it counts nothing")
    if not value.a.source.same_as(store.buffer) or not all(
        map(tvm_ffi.structural_equal, value.a.indices, store.indices)
    ):
        raise Refused("it counts nothing")
    if any(var.same_as(loop.loop_var) for var in nodes_of(tuple(store.indices), tirx.Var)):
        raise Refused("it has a counter for each iteration")
    return value.a


def _is(counter: Any, load: Any) -> bool:
    return (
        isinstance(load, tvm.ir.TensorLoad)
        and bool(load.source.same_as(counter.source))
        and all(map(tvm_ffi.structural_equal, load.indices, counter.indices))
    )
