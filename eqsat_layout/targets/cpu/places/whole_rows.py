"""Kernels whose results are the first elements of longer rows: of a product of weights in blocks of columns, the last
of which is partly padding.

In: a PrimFunc. Out: one whose results and operands have rows of the full length, and the way back. Schedules are made
for whole rows, with what follows the product on its accumulators; afterwards the vector at the end of a row stores
element by element, as many as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import ir, s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import as_int, depends_on, element_bytes
from eqsat_layout.targets.schedules.block_facts import runs_axes_in_loops
from eqsat_layout.targets.schedules.stages import has_reduction
from eqsat_layout.tir.blocks import (
    accesses_of,
    block_of,
    function_over,
    over_params,
    sequence,
    statements_of,
    store_of,
    storing_block,
    with_accesses,
)
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import changed_block, changed_loop, nodes_of, structural_map, substitute

_PREFETCH: Final = "tirx.prefetch"


@dataclass(frozen=True)
class WholeRows:
    """``func`` over rows of full length. ``params``: those of the original by number, where theirs are shorter, of
    ``length`` elements."""

    func: Any
    params: Mapping[int, Any]
    length: int

    def restored(self, func: Any) -> Any:
        """``func``, which is :attr:`func` scheduled, over the original's parameters.

        Refused where an operand is read beyond its end by a statement that stores no result, or a vector may hold
        elements of two rows.
        """
        olds = {func.params[number]: old for number, old in self.params.items()}
        body = _Guard(olds, self.length).guarded(func.body, {})

        def place(buffer: Any, indices: list[Any]) -> tuple[Any, list[Any]]:
            return olds.get(buffer, buffer), indices

        def on_region(region: Any) -> Any:
            if region.source not in olds:
                return region
            *outer, last = region.region
            first, size = (tirx.const(number, last.min.ty.dtype) for number in (0, self.length))
            whole = ir.Range.from_min_extent(first, size)
            return tirx.BufferRegion(olds[region.source], [*outer, whole])

        body = structural_map(with_accesses(body, place), (ir.TensorRegion, on_region))
        return over_params(func, body, self.params)


def whole_rows(func: Any, machine: CpuMachine) -> WholeRows:
    """Refused where no product has longer rows than the result, of whole vectors, or rows are more than read and
    written along."""
    if not has_reduction(func):
        raise Refused("no reduction")
    statements = statements_of(func)
    blocks = [block_of(statement) for statement in statements]
    last = blocks[-1]
    rows = _rows_of(last)
    length = as_int(rows.dom.extent)
    sums = {store_of(block).buffer for block in blocks[:-1] if block.init is not None}
    extents = {as_int(buffer.ty.shape[-1]) for buffer in sums if buffer.ty.shape}
    if length is None or len(extents) != 1 or store_of(last).buffer not in func.params:
        raise Refused("no rows of one known length")
    stored = {store_of(block).buffer for block in blocks}
    full, lanes = extents.pop() or 0, max(machine.lanes(element_bytes(buffer)) for buffer in stored)
    if full % lanes:  # vectors of what is not done on accumulators would go on from row to row
        raise Refused("rows of parts of vectors")
    widener = _Widener(blocks, length, full, sums)
    made = [widener.statement(statement) for statement in statements]
    if not widener.widened:
        raise Refused("no result of a part of the rows")
    allocated = [widener.after.get(buffer, buffer) for buffer in func.body.block.alloc_buffers]
    params = [widener.after.get(param, param) for param in func.params]
    whole = function_over(func, made, allocated, params)
    return WholeRows(whole, {n: old for n, old in enumerate(func.params) if old in widener.after}, length)


def _rows_of(block: Any) -> Any:
    """The last axis of an elementwise block."""
    if not block.iter_vars or any(int(axis.iter_type) != tirx.IterVar.DataPar for axis in block.iter_vars):
        raise Refused("the result is no elementwise one")
    return block.iter_vars[-1]


class _Widener:
    """Rows of ``length`` become rows of ``full`` elements in all blocks that follow the ``sums``.

    ``after``: by buffer the one with longer rows. ``widened``: names of blocks.
    """

    def __init__(self, blocks: Sequence[Any], length: int, full: int, sums: set[Any]) -> None:
        if full <= length:
            raise Refused("rows are whole")
        self.after: dict[Any, Any] = {}
        self.widened: set[str] = set()
        self._length, self._full = length, full
        made = set(sums)
        for block in blocks:
            loaded = {buffer for buffer, _ in accesses_of(block)} & made
            if block.init is None and loaded and as_int(_rows_of(block).dom.extent) == length:
                self._widen(block, sums)
                made.add(store_of(block).buffer)
        for block in blocks:
            others = {buffer for buffer, _ in accesses_of(block)} & self.after.keys()
            if others and str(block.name_hint) not in self.widened:
                raise Refused("rows are read by what does not go along them")

    def _widen(self, block: Any, sums: set[Any]) -> None:
        var = _rows_of(block).var
        for buffer, indices in accesses_of(block):
            if not any(depends_on(index, var) for index in indices):
                continue
            *outer, last = indices
            extent = as_int(buffer.ty.shape[-1])
            if not last.same_as(var) or any(depends_on(index, var) for index in outer):
                raise Refused("an element elsewhere along the rows")
            if buffer in sums:
                if extent != self._full:
                    raise Refused("products of several lengths")
                continue
            if extent != self._length:
                raise Refused("a part of an operand's rows")
            if buffer not in self.after:
                shape = [*buffer.ty.shape[:-1], tirx.const(self._full, buffer.ty.shape[-1].ty.dtype)]
                self.after[buffer] = tirx.decl_buffer(
                    shape, buffer.ty.dtype, buffer.name, scope=buffer.scope(), layout=None
                )
        values = structural_map(block.body, (ir.TensorLoad, lambda load: tirx.const(0, str(load.ty.dtype))))
        if depends_on(values.value, var):
            raise Refused("what depends on the place in a row")
        self.widened.add(str(block.name_hint))

    def statement(self, statement: Any) -> Any:
        block = block_of(statement)
        if str(block.name_hint) not in self.widened:
            return statement
        if not runs_axes_in_loops(statement, block, len(block.iter_vars)):
            raise Refused("a part of the result")
        rows = _rows_of(block)
        domain = ir.Range(rows.dom.min, tirx.const(self._full, rows.dom.extent.ty.dtype))
        iters = [*block.iter_vars[:-1], tirx.IterVar(domain, rows.var, rows.iter_type)]
        body = with_accesses(store_of(block), lambda buffer, indices: (self.after.get(buffer, buffer), indices))
        return storing_block(iters, block.name_hint, body, None, block.annotations)


@dataclass(frozen=True)
class _Guard:
    """Nothing of ``padded`` is stored, or loaded, at or beyond ``length`` along its last axis."""

    padded: Mapping[Any, Any]
    length: int

    def guarded(self, node: Any, places: Mapping[Any, Any]) -> Any:
        """``places``: of the axes of blocks around the statement, in loops."""
        if isinstance(node, tirx.SeqStmt):
            return sequence([self.guarded(part, places) for part in node.seq])
        if isinstance(node, s_tir.SBlockRealize):
            return self._realize(node, places)
        if isinstance(node, tirx.For):
            return self._loop(node, places)
        if isinstance(node, tirx.IfThenElse):
            otherwise = None if node.else_case is None else self.guarded(node.else_case, places)
            return tirx.IfThenElse(node.condition, self.guarded(node.then_case, places), otherwise)
        self._refuse_accesses(node)
        return node

    def _realize(self, realize: Any, places: Mapping[Any, Any]) -> Any:
        block = realize.block
        values = zip(block.iter_vars, realize.iter_values, strict=True)
        own = dict(places) | {axis.var: substitute(value, places) for axis, value in values}
        if block.init is not None:
            self._refuse_accesses(block.init)
        body = changed_block(block, body=self.guarded(block.body, own))
        return s_tir.SBlockRealize(realize.iter_values, realize.predicate, body)

    def _loop(self, loop: Any, places: Mapping[Any, Any]) -> Any:
        stored = list(self._stored(loop, dict(places))) if loop.kind == tirx.ForKind.VECTORIZED else []
        if not stored:
            return changed_loop(loop, body=self.guarded(loop.body, places))
        analyzer, start = tvm.sym.Analyzer(), {loop.loop_var: loop.min}
        analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))
        first = analyzer.simplify(substitute(stored[0], start))
        for place in stored:
            if not analyzer.can_prove_equal(place - first, loop.loop_var - loop.min):
                raise Refused("a vector that may go on in the next row")
        # no loop over all with a condition in it: LLVM 22 stores the last bfloat16 of a masked vector as four bytes
        left = tirx.min(loop.extent, tirx.max(tirx.const(self.length, first.ty.dtype) - first, 0))
        own = ir.Var("rest", loop.loop_var.ty)
        body = substitute(loop.body, {loop.loop_var: own})
        one_by_one = changed_loop(loop, loop_var=own, kind=tirx.ForKind.SERIAL, extent=left, body=body)
        return tirx.IfThenElse(self._is_inside(first + loop.extent - 1), loop, one_by_one)

    def _stored(self, loop: Any, places: dict[Any, Any]) -> Iterator[Any]:
        """Where in the rows of ``padded`` a vector is stored, by loops."""
        for realize in nodes_of(loop.body, s_tir.SBlockRealize):
            values = zip(realize.block.iter_vars, realize.iter_values, strict=True)
            places |= {axis.var: substitute(value, places) for axis, value in values}
        for store in nodes_of(loop.body, tirx.BufferStore):
            if store.buffer in self.padded:
                if "x" in str(store.indices[-1].ty.dtype):
                    raise Refused("a vector that is stored by one statement")
                yield substitute(store.indices[-1], places)

    def _is_inside(self, index: Any) -> Any:
        return index < tirx.const(self.length, index.ty.dtype)

    def _refuse_accesses(self, node: Any) -> None:
        """Those that are in no vector that is stored there, but for what is prefetched."""
        without = structural_map(node, (ir.Call, lambda call: tirx.const(0) if is_call(call, _PREFETCH) else call))
        loads, stores = nodes_of(without, ir.TensorLoad), nodes_of(without, tirx.BufferStore)
        if any(load.source in self.padded for load in loads) or any(store.buffer in self.padded for store in stores):
            raise Refused("rows of an operand are read, or of a result written, beyond their end")
