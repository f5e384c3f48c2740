"""Reads a PrimFunc: from blocks to a :class:`Computation`.

In: a PrimFunc as TE makes them: a sequence of blocks, each alone under plain serial loops over its variables. Out: what
it computes as plain data, or ``None`` where the function is of another form or does more than loads and stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.errors import LayoutError
from eqsat_layout.maps import GLOBAL, Extent
from eqsat_layout.tir.axis_groups import axis_groups
from eqsat_layout.tir.block_reader import BlockReader, BufferUse, NotUnderstoodError, Uses
from eqsat_layout.tir.computation import Block, Buffer, Computation, Iter, IterKind, Role
from eqsat_layout.tir.equality import fingerprint
from eqsat_layout.tir.extents import extent_of
from eqsat_layout.tir.structural import items_of

__all__ = ["Computation", "analyse", "compute_the_same", "same_computation"]


def analyse(func: Any) -> Computation | None:
    """What ``func`` (a ``tirx.PrimFunc``) computes; ``None`` if it is not understood."""
    try:
        return _PrimFuncReader(func).computation()
    except (NotUnderstoodError, LayoutError, RecursionError):  # a concat of hundreds is that deep
        return None


def same_computation(f: Any, g: Any) -> bool:
    """Both PrimFuncs compute the same of their operands, up to names, unit axes and the order of spatial loops.

    True is a proof, bit for bit: the arithmetic and the order of reductions agree. False may mean "unsure".
    """
    return compute_the_same(analyse(f), analyse(g))


def compute_the_same(left: Computation | None, right: Computation | None) -> bool:
    """The same of what was read of them."""
    if left is None or right is None:
        return False
    mark = fingerprint(left)
    return mark is not None and mark == fingerprint(right)


class _PrimFuncReader:
    """One pass over one PrimFunc."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.uses = Uses()
        self.groups = axis_groups(func)

    def computation(self) -> Computation:
        root = self.func.body
        if type(root) is not s_tir.stmt.SBlockRealize:
            raise NotUnderstoodError
        for param in self.func.params:
            if type(param.ty) is tirx.BufferType:
                self._declare(param, Role.OPERAND)
            else:
                self.uses.declare_symbol(param)
        body = root.block
        if body.iter_vars or body.match_buffers or body.init is not None:
            raise NotUnderstoodError
        for buffer in body.alloc_buffers:
            self._declare(buffer, Role.INTERNAL)
        statement = body.body
        statements = list(statement.seq) if type(statement) is tirx.SeqStmt else [statement]
        blocks = tuple(_block(self.uses, s) for s in statements)
        return Computation.of(tuple(self._buffer(use) for use in self.uses.buffers), blocks)

    def _declare(self, var: Any, role: Role) -> None:
        info = var.ty
        offset = info.elem_offset
        if len(info.strides) or info.layout is not None or type(offset) is not tirx.IntImm or offset.value:
            raise NotUnderstoodError
        shape = items_of(info.shape)
        for extent in shape:
            if type(extent) is not tirx.IntImm:
                self._symbols_in(extent)
        self.uses.declare(var, tuple(map(extent_of, shape)), role)

    def _symbols_in(self, expr: Any) -> None:
        if type(expr) is tvm.ir.Var:
            self.uses.declare_symbol(expr)
        elif hasattr(expr, "a"):
            self._symbols_in(expr.a)
            self._symbols_in(expr.b)

    def _buffer(self, use: BufferUse) -> Buffer:
        info = use.var.ty
        role = Role.RESULT if use.role is Role.OPERAND and use.written else use.role
        scope = str(info.storage_scope) or GLOBAL
        return Buffer(str(use.var.name), use.shape, str(info.dtype), scope, role, self.groups.get(use.var, ()))


def _block(uses: Uses, statement: Any) -> Block:
    """A block with its loops."""
    realize, loops = _loops(statement)
    block = realize.block
    if block.match_buffers or block.alloc_buffers or not _is_true(realize.predicate):
        raise NotUnderstoodError
    reader = BlockReader(uses, items_of(block.iter_vars))
    _check_bindings(list(realize.iter_values), reader.iters, loops)
    inits = () if block.init is None else reader.stores(block.init)
    return reader.block(str(block.name_hint), inits, reader.stores(block.body))


def _loops(statement: Any) -> tuple[Any, dict[int, Extent]]:
    """The block under a nest of plain loops, and the loops' extents, by the hashes of their variables."""
    loops: dict[int, Extent] = {}
    while type(statement) is tirx.For:
        start = statement.min
        if int(statement.kind) or statement.annotations or type(start) is not tirx.IntImm or start.value:
            raise NotUnderstoodError
        loops[hash(statement.loop_var)] = extent_of(statement.extent)
        statement = statement.body
    if type(statement) is not s_tir.stmt.SBlockRealize:
        raise NotUnderstoodError
    return statement, loops


def _check_bindings(values: Sequence[Any], iters: Sequence[Iter], loops: dict[int, Extent]) -> None:
    """Every block variable is one loop over its whole extent, and no loop repeats the block."""
    free = dict(loops)
    places = {loop: place for place, loop in enumerate(loops)}
    reduced = [hash(v) for v, i in zip(values, iters, strict=True) if i.kind is IterKind.REDUCE]
    order = [places[loop] for loop in reduced if loop in places]
    if order != sorted(order):
        raise NotUnderstoodError
    for value, axis in zip(values, iters, strict=True):
        if type(value) is tvm.ir.Var:
            if free.pop(hash(value), None) != axis.extent:
                raise NotUnderstoodError
        elif axis.extent != 1 or type(value) is not tirx.IntImm or value.value:
            raise NotUnderstoodError
    if any(extent != 1 for extent in free.values()):
        raise NotUnderstoodError


def _is_true(predicate: Any) -> bool:
    return type(predicate) is tirx.IntImm and bool(predicate.value)
