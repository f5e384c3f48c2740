"""Values that are named many times over in one another are kept in memory, where TVM would multiply them.

In: PrimFuncs for LLVM that only its code generator's own passes are left for. Out: the same, with the names of a store
that would take these for ever as locals, which LLVM keeps in registers. TVM's analyzer puts what a name stands for in
its place, and what the names in that stand for in theirs: a quotient of quotients that reads each of them a few times
has millions of terms then. What is loaded it leaves alone. So are those behind a condition in an integer that has a
name, or that a loop or branch goes by: the analyzer looks at these twice, and only once knows that the condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.passes.guarded_divisions import is_integer
from eqsat_layout.targets.cpu.stack import kept_on_stack
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import (
    Rule,
    changed_loop,
    mapped_body,
    nodes_of,
    primfunc_pass,
    structural_map_outermost,
    substitute,
)

_MOST: Final = 1 << 14
"""Variables and loads of a name's value, with those of the names in it: TVM looks at so many in some .1 s."""
_FEWEST: Final = 8
"""Names of a store below which none has so many."""
_PLAIN: Final = ("int", "uint", "float16", "float32", "float64")
"""Types of values that memory holds as they are."""


def names_in_memory() -> Any:
    """A pass."""
    return primfunc_pass("NamesInMemory", _changed)


def _changed(func: Any) -> Any:
    lets = nodes_of(func.body, tirx.Let)
    if not lets:
        return func
    rules: list[Rule] = [(tirx.Bind, _bound), (tirx.For, _repeated), (tirx.IfThenElse, _branched)]
    if len(lets) >= _FEWEST or _is_decided_twice(lets):  # nearly no body, and some hold many thousands of stores
        rules.append((tirx.BufferStore, _stored))
    return mapped_body(func, *rules)


def _bound(bind: Any) -> Any:
    return _settled(bind, bind.value, lambda value: tirx.Bind(bind.var, value))


def _repeated(loop: Any) -> Any:
    return _settled(loop, loop.extent, lambda extent: changed_loop(loop, extent=extent))


def _branched(branch: Any) -> Any:
    return _settled(
        branch, branch.condition, lambda condition: tirx.IfThenElse(condition, branch.then_case, branch.else_case)
    )


def _settled(statement: Any, value: Any, with_value: Callable[[Any], Any]) -> Any:
    """``statement`` with its ``value`` without names of integers, behind what gives those their values."""
    return (
        _behind_names(statement, value, with_value)
        if any(map(_is_of_integer, nodes_of(value, tirx.Let)))
        else statement
    )


def _behind_names(statement: Any, value: Any, with_value: Callable[[Any], Any]) -> Any:
    before: list[Any] = []
    made = _in_memory(value, before)
    return tirx.SeqStmt([*before, with_value(made)]) if before else statement


def _is_of_integer(let: Any) -> bool:
    return is_integer(let.var)


def _is_decided_twice(lets: Sequence[Any]) -> bool:
    """An integer that has a name holds others behind a condition."""
    choices = (call for let in lets if _is_of_integer(let) for call in nodes_of(let.value, tvm.ir.Call))
    return any(is_choice(call) and nodes_of(call, tirx.Let) for call in choices)


def _stored(store: Any) -> Any:
    lets = nodes_of(store.value, tirx.Let)
    is_long = len(lets) >= _FEWEST and _Sizes().of(store.value) > _MOST
    if not is_long and not _is_decided_twice(lets):
        return store
    return _behind_names(store, store.value, lambda value: tirx.BufferStore(store.buffer, value, list(store.indices)))


class _Sizes:
    """Of what names stand for, when what the names in it stand for is in their place."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        """Of ``value``, and at least that of each name in it."""
        read, most, own = list[Any](), 0, 0

        def let(node: Any) -> Any:
            nonlocal most, own
            self._known[node.var] = self.of(node.value)
            inside = self.of(node.body)
            own, most = own + inside, max(most, self._known[node.var])
            return node

        structural_map_outermost(value, (tirx.Let, let), (tvm.ir.Var, read.append))
        return max(most, own + sum(self._known.get(var, 1) for var in read))


def _in_memory(value: Any, before: list[Any]) -> Any:
    """``value`` without names. What is done ``before`` gives those their values that it always computes."""

    def let(node: Any) -> Any:
        made = _in_memory(node.value, before)
        if not _is_plain(node.var):
            before.append(tirx.Bind(node.var, made))
            return _in_memory(node.body, before)
        local = _Local.of(node.var)
        before.extend([local.allocated, local.stored(made)])
        return _in_memory(substitute(node.body, {node.var: local.loaded}), before)

    def choice(call: Any) -> Any:
        if not is_choice(call) or not nodes_of(call, tirx.Let):
            return None
        if not _is_plain(call):
            return call  # its names stay behind the condition, which may guard a division
        local, condition = _Local.of(call), _in_memory(call.args[0], before)
        before.extend([local.allocated, tirx.IfThenElse(condition, *map(local.filled, call.args[1:]))])
        return local.loaded

    return structural_map_outermost(value, (tirx.Let, let), (tvm.ir.Call, choice))


@dataclass(frozen=True)
class _Local:
    """Memory for a value. ``index``: of all of its lanes."""

    buffer: Any
    index: Any

    @classmethod
    def of(cls, value: Any) -> _Local:
        element, _, lanes = str(value.ty.dtype).partition("x")
        zero, one = tirx.IntImm("int32", 0), tirx.IntImm("int32", 1)
        buffer = tirx.decl_buffer((int(lanes or 1),), element, "value", scope="local")
        return cls(buffer, tirx.Ramp(zero, one, int(lanes)) if lanes else zero)

    @property
    def allocated(self) -> Any:
        return kept_on_stack(tirx.AllocBuffer(self.buffer))

    @property
    def loaded(self) -> Any:
        return tirx.BufferLoad(self.buffer, [self.index])

    def stored(self, value: Any) -> Any:
        return tirx.BufferStore(self.buffer, value, [self.index])

    def filled(self, value: Any) -> Any:
        """The same with what its names need before it."""
        before: list[Any] = []
        made = self.stored(_in_memory(value, before))
        return tirx.SeqStmt([*before, made]) if before else made


def _is_plain(value: Any) -> bool:
    return str(value.ty.dtype).startswith(_PLAIN)
