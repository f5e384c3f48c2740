"""Values that are named many times over in one another are kept in memory, where TVM would multiply them.

In: PrimFuncs for LLVM that only its code generator's own passes are left for. Out: the same, with the names of a store
that would take these for ever as locals, which LLVM keeps in registers. TVM's analyzer puts what a name stands for in
its place, and what the names in that stand for in theirs: a quotient of quotients that reads each of them a few times
has millions of terms then. What is loaded it leaves alone. So are those behind a condition in an integer that has a
name, or that a loop or branch goes by: the analyzer looks at these twice, and only once knows that the condition holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.stack import kept_on_stack
from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import (
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
    if not nodes_of(func.body, tirx.Let):
        return func
    statements = (tirx.Bind, _bound), (tirx.For, _repeated), (tirx.IfThenElse, _branched)
    return mapped_body(func, *statements, (tirx.BufferStore, _stored))


def _bound(bind: Any) -> Any:
    before, value = _settled(bind.value)
    return _after(before, tirx.Bind(bind.var, value)) if before else bind


def _repeated(loop: Any) -> Any:
    before, extent = _settled(loop.extent)
    return _after(before, changed_loop(loop, extent=extent)) if before else loop


def _branched(branch: Any) -> Any:
    before, condition = _settled(branch.condition)
    return _after(before, tirx.IfThenElse(condition, branch.then_case, branch.else_case)) if before else branch


def _settled(value: Any) -> tuple[list[Any], Any]:
    """``value`` without names of integers, and what is done before it."""
    before: list[Any] = []
    return before, _in_memory(value, before) if any(map(_is_integer, nodes_of(value, tirx.Let))) else value


def _is_integer(let: Any) -> bool:
    return "int" in str(let.var.ty.dtype)


def _has_named_choice(value: Any) -> bool:
    return any(is_choice(call) and nodes_of(call, tirx.Let) for call in nodes_of(value, tvm.ir.Call))


def _after(before: list[Any], statement: Any) -> Any:
    return tirx.SeqStmt([*before, statement])


def _stored(store: Any) -> Any:
    lets = nodes_of(store.value, tirx.Let)
    is_long = len(lets) >= _FEWEST and _Sizes().of(store.value) > _MOST
    if not is_long and not any(_is_integer(let) and _has_named_choice(let.value) for let in lets):
        return store
    before: list[Any] = []
    value = _in_memory(store.value, before)
    if not before:
        return store
    return _after(before, tirx.BufferStore(store.buffer, value, list(store.indices)))


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
