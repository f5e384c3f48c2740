"""Statements with an order, whose inner loops have none: the work items of a group share these.

In: a statement without blocks that one work item would do. Out: what each work item of a group does. All of them follow
loops and keep variables of their own, which come out alike; one of them does what is stored in between; iterations of
loops that can't meet in memory are dealt out; barriers are around both. No barrier is in a branch, where PoCL 3.0 loses
stores: what a branch does is done under its condition, step by step. Non-maximum suppression is such: boxes that are
left go one after the other, those that each of them suppresses at once. So are recurrences of any number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.gpu.kernels.independent_loops import analyzer_of_loops, does_more_than_store
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.tir.blocks import sequence
from eqsat_layout.tir.structural import changed_loop, is_one_of, let_values, nodes_of, substitute

MOST_ITEMS: Final = 128
"""Work items of a group: what meets at a barrier (assumed)."""
_ONE_BY_ONE: Final = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)
_NOT_ALWAYS: Final = (tvm.ir.TensorLoad, tvm.ir.Call, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
"""What may not be worked out where a condition does not hold."""
_LEAST: Final = 8
"""Iterations below which a barrier takes longer than it saves (assumed)."""


@dataclass(frozen=True)
class SharedLoops:
    """``body``: what a work item does, by ``item``, its number among ``items``."""

    item: Any
    items: int
    body: Any


def shared_loops(statement: Any) -> SharedLoops:
    """Refused where no loop can be dealt out, or memory is touched otherwise than by loads and stores."""
    if does_more_than_store(statement) or nodes_of(statement, tirx.AttrStmt):
        raise Refused("it touches memory by address")
    group = _Group(statement)
    body = _sequence(group.done(statement, None))
    if not group.dealt:
        raise Refused("it has no loop whose iterations can't meet")
    return SharedLoops(group.item, group.items, group.with_items(body))


class _Group:
    """``dealt``: how many iterations work items share, each time."""

    def __init__(self, statement: Any) -> None:
        self._loops = nodes_of(statement, tirx.For)
        self._private = [one.buffer for one in nodes_of(statement, tirx.AllocBuffer)]
        self._turns = tirx.Var("items", "int64")  # how many there are is known in the end
        self.item = tirx.Var("threadIdx.x", "int32")
        self.dealt: list[Any] = []
        self._names = 0

    @property
    def items(self) -> int:
        """As many as most of the loops have iterations, a power of two."""
        return min(MOST_ITEMS, 1 << (max(map(_most, self.dealt)) - 1).bit_length())

    def with_items(self, body: Any) -> Any:
        """With their number."""
        return substitute(body, {self._turns: tirx.IntImm("int64", self.items)})

    def done(self, statement: Any, condition: Any) -> list[Any]:
        """By all work items together, statement by statement, if ``condition`` holds, which is ``None`` or a name."""
        if not self._stored(statement):
            return self._by_each(statement, condition)
        if isinstance(statement, tirx.SeqStmt):
            return self._in_turn(list(statement.seq), condition)
        nested = self._free_loops(statement)
        if nested:
            inside, beyond = _apart_by_bound(nested[0])
            return [
                *self._between_barriers(self._dealt([inside, *nested[1:]]), condition),
                *([] if beyond is None else self._by_first(beyond, condition)),
            ]
        if not self._has_shared(statement):
            return self._by_first(statement, condition)
        if isinstance(statement, tirx.For) and statement.kind in _ONE_BY_ONE:
            extent = statement.extent
            if condition is not None:
                extent = tirx.if_then_else(condition, extent, tirx.IntImm(extent.ty.dtype, 0))
            body = _sequence(self.done(statement.body, condition))
            return [changed_loop(statement, kind=tirx.ForKind.SERIAL, extent=extent, body=body)]
        if isinstance(statement, tirx.IfThenElse):
            holds = self._new("holds", "bool")
            found = [tirx.Bind(holds, _both(condition, statement.condition))]
            found += self.done(statement.then_case, holds)
            if statement.else_case is not None:
                fails = self._new("fails", "bool")
                found.insert(1, tirx.Bind(fails, _both(condition, tirx.Not(holds))))
                found += self.done(statement.else_case, fails)
            return found
        raise Refused(f"it has a {type(statement).__name__}")

    def _in_turn(self, statements: Sequence[Any], condition: Any) -> list[Any]:
        """One after the other; what a name stands for that may only be worked out under the condition is kept."""
        found: list[Any] = []
        while statements:
            first, *statements = statements
            if isinstance(first, tirx.Bind) and condition is not None and nodes_of(first.value, *_NOT_ALWAYS):
                own = tirx.decl_buffer([1], first.var.ty.dtype, first.var.name, scope="local", layout=None)
                self._private.append(own)
                found.append(tirx.AllocBuffer(own))
                rest = substitute(_sequence(statements), {first.var: tirx.BufferLoad(own, [0])}) if statements else None
                statements = [] if rest is None else list(rest.seq) if isinstance(rest, tirx.SeqStmt) else [rest]
                first = tirx.BufferStore(own, first.value, [0])
            found += self.done(first, condition)
        return found

    def _by_each(self, statement: Any, condition: Any) -> list[Any]:
        """By each work item, for itself."""
        is_always = condition is None or isinstance(statement, tirx.AllocBuffer | tirx.Bind)
        return [statement if is_always else tirx.IfThenElse(condition, statement, None)]

    def _by_first(self, statement: Any, condition: Any) -> list[Any]:
        return self._between_barriers(tirx.IfThenElse(tirx.EQ(self.item, 0), statement, None), condition)

    def _between_barriers(self, statement: Any, condition: Any) -> list[Any]:
        made = statement if condition is None else tirx.IfThenElse(condition, statement, None)
        return [barrier(), made, barrier()]

    def _new(self, name: str, dtype: str) -> Any:
        self._names += 1
        return tirx.Var(f"{name}{self._names}", dtype)

    def _stored(self, statement: Any) -> list[Any]:
        """Stores to what all work items see."""
        return [one for one in nodes_of(statement, tirx.BufferStore) if not is_one_of(one.buffer, self._private)]

    def _keeps(self, statement: Any) -> bool:
        """It changes variables that are read elsewhere, of which each work item has its own."""
        own = [one.buffer for one in nodes_of(statement, tirx.AllocBuffer)]
        kept = [one.buffer for one in nodes_of(statement, tirx.BufferStore) if is_one_of(one.buffer, self._private)]
        return not all(is_one_of(one, own) for one in kept)

    def _has_shared(self, statement: Any) -> bool:
        """A loop inside of it can be dealt out, or a variable would not come out alike if one work item did it."""
        return self._keeps(statement) or any(map(self._free_loops, nodes_of(statement, tirx.For)))

    def _free_loops(self, statement: Any) -> list[Any]:
        """Nested loops that can be dealt out together, if they do enough."""
        found: list[Any] = []
        while isinstance(statement, tirx.For) and self._is_free(statement):
            others = [one.loop_var for one in found]
            if _depends_on(statement.min, others) or _depends_on(statement.extent, others):
                break
            if found and (_apart_by_bound(found[0])[1] is not None or _apart_by_bound(statement)[1] is not None):
                break
            found.append(statement)
            statement = statement.body
        return found if _most(iterations_of_loops(found)) >= _LEAST else []

    def _is_free(self, loop: Any) -> bool:
        """Two iterations touch no common element of what is written, and change nothing that is kept."""
        stored = [one.buffer for one in self._stored(loop)]
        if loop.kind not in _ONE_BY_ONE or self._keeps(loop):
            return False
        if _loads(loop.min, {}, stored) + _loads(loop.extent, {}, stored):
            return False
        loop, _ = _apart_by_bound(loop)
        analyzer = analyzer_of_loops([loop, *(one for one in self._loops if not one.loop_var.same_as(loop.loop_var))])
        inside = [loop.loop_var, *(one.loop_var for one in nodes_of(loop.body, tirx.For))]
        accesses = _accesses(loop.body, let_values(loop.body), stored)
        stores = [one for one in accesses if one.is_store]
        return bool(stores) and all(
            any(_are_apart(analyzer, loop.loop_var, inside, store, other, axis) for axis, _ in enumerate(store.indices))
            for store in stores
            for other in accesses
            if other.buffer.same_as(store.buffer)
        )

    def _dealt(self, loops: Sequence[Any]) -> Any:
        """Neighbours take neighbouring iterations."""
        total = iterations_of_loops(loops)
        self.dealt.append(total)
        turn, flat = tirx.Var("turn", "int64"), tirx.Var("flat", "int64")
        left: Any = flat
        bound: list[Any] = []
        places: dict[Any, Any] = {}
        for loop in reversed(loops):
            dtype = str(loop.loop_var.ty.dtype)
            place = places[loop.loop_var] = tirx.Var(loop.loop_var.name, dtype)
            at = left if loop is loops[0] else tirx.floormod(left, loop.extent.astype("int64"))
            bound.append(tirx.Bind(place, loop.min + at.astype(dtype)))
            left = tirx.floordiv(left, loop.extent.astype("int64"))
        body = tirx.SeqStmt([*bound, substitute(loops[-1].body, places)])
        first = tirx.Bind(flat, turn * self._turns + self.item.astype("int64"))
        dealt = tirx.SeqStmt([first, tirx.IfThenElse(flat < total, body, None)])
        count = tirx.floordiv(total + self._turns - 1, self._turns)
        return tirx.For(turn, tirx.IntImm("int64", 0), count, tirx.ForKind.SERIAL, dealt)


def _both(condition: Any, other: Any) -> Any:
    return other if condition is None else tirx.And(condition, other)


def iterations_of_loops(loops: Sequence[Any]) -> Any:
    """The iterations of all loops together."""
    return math.prod((loop.extent.astype("int64") for loop in loops), start=tirx.IntImm("int64", 1))


def _most(count: Any) -> int:
    """What a number is at most."""
    return int(tvm.sym.Analyzer().const_int_bound(count).max_value)


@dataclass(frozen=True)
class _Access:
    """``conditions``: those around it that hang on places only."""

    buffer: Any
    indices: tuple[Any, ...]
    conditions: tuple[Any, ...]
    is_store: bool


def _are_apart(analyzer: Any, var: Any, inside: Sequence[Any], store: _Access, other: _Access, axis: int) -> bool:
    """Along the axis: at the place of its own iteration both, or one in a place that no iteration stores to."""
    mine, its = (analyzer.simplify(one.indices[axis]) for one in (store, other))
    if nodes_of(mine, tvm.ir.TensorLoad) + nodes_of(its, tvm.ir.TensorLoad):
        return False
    if tvm_ffi.structural_equal(mine, its) and _moves_alone(var, inside, mine):
        return True
    if _depends_on(its, inside):
        return False
    with ExitStack() as stack:
        for condition in store.conditions:
            stack.enter_context(analyzer.constraint_scope(condition))
        return bool(analyzer.can_prove(tirx.NE(mine, its)))


def _accesses(statement: Any, bound: Any, buffers: Sequence[Any], conditions: tuple[Any, ...] = ()) -> list[_Access]:
    """All stores to ``buffers`` and loads of them, names as what they stand for."""
    if isinstance(statement, tirx.SeqStmt):
        return [one for part in statement.seq for one in _accesses(part, bound, buffers, conditions)]
    if isinstance(statement, tirx.IfThenElse):
        more = (*conditions, *_of_places(substitute(statement.condition, bound)))
        found = _loads(statement.condition, bound, buffers, conditions)
        found += _accesses(statement.then_case, bound, buffers, more)
        return found + (_accesses(statement.else_case, bound, buffers, conditions) if statement.else_case else [])
    if isinstance(statement, tirx.For):
        bounds = [
            *_loads(statement.min, bound, buffers, conditions),
            *_loads(statement.extent, bound, buffers, conditions),
        ]
        return bounds + _accesses(statement.body, bound, buffers, conditions)
    found = _loads(statement, bound, buffers, conditions)
    for store in nodes_of(statement, tirx.BufferStore):
        if is_one_of(store.buffer, buffers):
            at = tuple(substitute(index, bound) for index in store.indices)
            found.append(_Access(store.buffer, at, conditions, True))
    return found


def _loads(node: Any, bound: Any, buffers: Sequence[Any], conditions: tuple[Any, ...] = ()) -> list[_Access]:
    return [
        _Access(load.source, tuple(substitute(index, bound) for index in load.indices), conditions, False)
        for load in nodes_of(node, tvm.ir.TensorLoad)
        if is_one_of(load.source, buffers)
    ]


def _apart_by_bound(loop: Any) -> tuple[Any, Any | None]:
    """A loop as often as is known at run time only, cut where bounds of its indices come to bear: up to there an index
    is what it says, and beyond it many iterations read one element. The second is ``None`` where nothing is bounded."""
    bounds = [
        int(one.b.value) + 1
        for one in nodes_of(loop.body, tirx.Min)
        if one.a.same_as(loop.loop_var) and isinstance(one.b, tirx.IntImm)
    ]
    is_counted = as_int(loop.extent) is not None or as_int(loop.min) != 0
    if not bounds or is_counted or nodes_of(loop.body, tirx.AllocBuffer):
        return loop, None
    bound = tirx.IntImm(loop.loop_var.ty.dtype, min(bounds))
    zero = tirx.IntImm(loop.loop_var.ty.dtype, 0)
    before = changed_loop(loop, extent=tirx.min(loop.extent, bound))
    behind = changed_loop(loop, min=bound, extent=tirx.max(loop.extent - bound, zero))
    named = [one.loop_var for one in nodes_of(behind, tirx.For)] + [one.var for one in nodes_of(behind, tirx.Bind)]
    return before, substitute(behind, {var: tirx.Var(var.name, var.ty.dtype) for var in named})


def _of_places(condition: Any) -> list[Any]:
    """Those of its parts, all of which hold, that read nothing."""
    if isinstance(condition, tirx.And):
        return [*_of_places(condition.a), *_of_places(condition.b)]
    return [] if nodes_of(condition, tvm.ir.TensorLoad, tvm.ir.Call) else [condition]


def _moves_alone(var: Any, inside: Sequence[Any], index: Any) -> bool:
    """The index is another one in each iteration, whatever loops inside of it do."""
    if _depends_on(index, [one for one in inside if not one.same_as(var)]):
        return False
    found = tvm.sym.detect_linear_equation(index, [var])
    return len(found) == 2 and isinstance(found[0], tirx.IntImm) and int(found[0]) != 0


def _depends_on(index: Any, variables: Sequence[Any]) -> bool:
    return any(is_one_of(var, variables) for var in nodes_of(index, tirx.Var))


def barrier() -> Any:
    """All work items of a group have come as far, and see what the others have stored."""
    return tirx.Evaluate(tirx.op.tvm_storage_sync("shared"))


def _is_barrier(statement: Any) -> bool:
    name = str(getattr(getattr(getattr(statement, "value", None), "op", None), "name", ""))
    return isinstance(statement, tirx.Evaluate) and name.endswith("tvm_storage_sync")


def _sequence(statements: Sequence[Any]) -> Any:
    """One after the other; one barrier where there would be two."""
    kept: list[Any] = []
    for one in statements:
        if not (_is_barrier(one) and kept and _is_barrier(kept[-1])):
            kept.append(one)
    return sequence(kept)
