"""``argmax`` and ``argmin`` along rows as two reductions, both in vectors: the extreme, and where it is first.

In: a PrimFunc with a block that keeps a value and its index. Out: the same as one block that reduces the values, one
that reduces the indices of elements equal to the result, and one that gives the index where no element was better than
the value to begin with. Not for what has to be exact: NaN, at which TVM's block stops or not by where it stands, is
never the extreme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import tvm_ffi
from tvm import ir, s_tir, tirx

from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.rebuild import schedule_over
from eqsat_layout.tir.analyzers import analyzer_of
from eqsat_layout.tir.blocks import block_of, statements_of, storing_block
from eqsat_layout.tir.structural import nodes_of, substitute

_NOWHERE: Final = (1 << 31) - 1
"""The index of no element."""


def split_extremes(func: Any) -> Any:
    """The new function; ``func`` itself where nothing is split."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    root = func.body.block
    statements: list[Any] = []
    allocated = list(root.alloc_buffers)
    for statement in statements_of(func):
        found = unless_refused(partial(_extreme_of, statement))
        if found is None:
            statements.append(statement)
        else:
            first = tirx.decl_buffer(found.index.buffer.shape, found.index.buffer.dtype, "first")
            allocated.append(first)
            statements += found.in_three(first)
    changed = len(allocated) > len(root.alloc_buffers)
    return schedule_over(func, statements, allocated).mod["main"] if changed else func


def _extreme_of(statement: Any) -> _Extreme | None:
    return _Extreme.of(block_of(statement))


def kind_of_extreme(index: Any, value: Any) -> Any:
    """``Max`` or ``Min`` if two stores keep the extreme so far and the first index of it, else ``None``."""
    stores = (index, value)
    if not all(isinstance(store.value, tirx.Select) for store in stores):
        return None
    kept = [tirx.BufferLoad(store.buffer, store.indices) for store in stores]
    given = [store.value.false_value for store in stores]
    for kind in (tirx.Max, tirx.Min):
        if all(map(tvm_ffi.structural_equal, better(kind, kept, given), (index.value, value.value))):
            return kind
    return None


def better(kind: Any, kept: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Index and value of the extreme of two, the first where they are equal."""
    stays = (tirx.GT if kind is tirx.Max else tirx.LT)(kept[1], given[1])
    stays_first = tirx.Or(stays, tirx.And(tirx.EQ(kept[1], given[1]), tirx.LT(kept[0], given[0])))
    return [tirx.Select(stays_first, kept[0], given[0]), tirx.Select(stays, kept[1], given[1])]


@dataclass(frozen=True)
class _Extreme:
    """A block that keeps the extreme of its elements so far, and the least index of one that is equal."""

    block: Any
    kind: Any
    element: Any
    number: Any
    index: Any
    value: Any

    @staticmethod
    def of(block: Any) -> _Extreme | None:
        """What ``block`` is, if its reduced axes have known extents and the last lies along its operand's rows."""
        reduced = [axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
        body = block.body
        parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else []
        if not reduced or len(parts) != 4 or block.init is None:
            return None
        is_bound = [isinstance(part, tirx.Bind) for part in parts] == [True, True, False, False]
        if not is_bound or not all(isinstance(axis.dom.extent, tirx.IntImm) for axis in reduced):
            return None
        longer = [axis for axis in reduced if int(axis.dom.extent) > 1] or reduced
        values = {part.var: part.value for part in parts[:2]}
        index, value = (tirx.BufferStore(p.buffer, substitute(p.value, values), p.indices) for p in parts[2:])
        if not isinstance(index.value, tirx.Select) or not isinstance(value.value, tirx.Select):
            return None
        number, element = index.value.false_value, value.value.false_value
        if not _is_counted(number, block) or not isinstance(element, ir.TensorLoad):
            return None
        if StageAccess(element.source, tuple(element.indices)).stride(longer[-1].var) != 1:
            return None
        kind = kind_of_extreme(index, value)
        return None if kind is None else _Extreme(block, kind, element, number, index, value)

    def in_three(self, first: Any) -> list[Any]:
        """The statements; ``first`` is the buffer of the least indices."""
        begin = {store.buffer: store.value for store in self.block.init.seq}
        extreme = tirx.BufferLoad(self.value.buffer, self.value.indices)
        place = tirx.BufferLoad(first, self.index.indices)
        nowhere = tirx.IntImm(str(first.dtype), _NOWHERE)
        here = tirx.Select(tirx.EQ(self.element, extreme), self.number, nowhere)
        found = tirx.Select(tirx.EQ(place, nowhere), begin[self.index.buffer], place)
        return [
            self._statement("value", self.value, self.kind(extreme, self.element), begin[self.value.buffer]),
            self._statement(
                "first", tirx.BufferStore(first, place, self.index.indices), tirx.Min(place, here), nowhere
            ),
            self._statement("index", self.index, found, None),
        ]

    def _statement(self, name: str, store: Any, value: Any, begin: Any) -> Any:
        """A block with axes of its own, which reduces where it is told what to ``begin`` with."""
        axes = [axis for axis in self.block.iter_vars if begin is not None or axis.iter_type == tirx.IterVar.DataPar]
        own = {axis.var: ir.Var(axis.var.name, axis.var.ty) for axis in axes}
        iters = [tirx.IterVar(axis.dom, own[axis.var], axis.iter_type) for axis in axes]
        body = substitute(tirx.BufferStore(store.buffer, value, store.indices), own)
        init = None if begin is None else tirx.BufferStore(body.buffer, begin, body.indices)
        return storing_block(iters, f"{self.block.name_hint}_{name}", body, init)


def _is_counted(number: Any, block: Any) -> bool:
    """Whether ``number`` is worked out from the block's axes alone, and is none that stands for no element."""
    if nodes_of(number, ir.TensorLoad) or nodes_of(number, ir.Call):
        return False
    bounds = analyzer_of(block.iter_vars).const_int_bound(number)
    return bool(bounds.min_value >= 0 and bounds.max_value < _NOWHERE)
