"""A PrimFunc as a list of loop nests, as far as kernels are made of them by their accesses.

In: an unscheduled PrimFunc of blocks. Out: one :class:`Nest` per block, those that only prepare elements put in the
place where they are read. Refused: what is no such function; it runs as it stands, in one work item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.schedules.block_facts import is_true, runs_axes_in_loops
from eqsat_layout.targets.schedules.inlining import has_long_indices
from eqsat_layout.tir.blocks import statements_of
from eqsat_layout.tir.intrinsics import short_name
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

_LARGEST: Final = 64
"""Loads and calls of a nest beyond which nothing more is put into it."""

_COSTLY: Final = ("exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "tan", "atan", "call_extern")
"""Functions of many instructions."""


@dataclass(frozen=True)
class Axis:
    """``var`` runs from 0 to ``extent``, an expression of TIR."""

    var: Any
    extent: Any


@dataclass(frozen=True)
class Nest:
    """``stores`` for every point of the axes, one after the other along those ``reduced``; ``inits`` before."""

    name: str
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    inits: tuple[Any, ...]
    stores: tuple[Any, ...]

    @property
    def buffers(self) -> list[Any]:
        """What it writes."""
        return [store.buffer for store in self.stores]

    def loads(self, buffer: Any = None) -> list[Any]:
        """All loads of the stores' values, or those of one buffer."""
        found = [load for store in self.stores for load in nodes_of(store.value, tvm.ir.TensorLoad)]
        return found if buffer is None else [load for load in found if load.source.same_as(buffer)]

    @property
    def is_plain(self) -> bool:
        """It stores one element for each point, at the indices that the spatial axes are."""
        return len(self.stores) == 1 and self.is_at_axes(self.stores[0].indices)

    def is_at_axes(self, indices: Sequence[Any]) -> bool:
        """The indices are the spatial axes in order."""
        return len(indices) == len(self.spatial) and all(
            index.same_as(axis.var) for index, axis in zip(indices, self.spatial, strict=True)
        )

    @property
    def size(self) -> int:
        """Loads and calls of a point."""
        return sum(len(nodes_of(store.value, tvm.ir.TensorLoad, tvm.ir.Call)) for store in self.stores)

    @property
    def is_long(self) -> bool:
        """Its indices would multiply those of its readers."""
        return any(has_long_indices(store) for store in self.stores)


def nests_of(func: Any) -> list[Nest]:
    """In order; refused where some block is none."""
    if not isinstance(func.body, s_tir.SBlockRealize) or list(func.body.block.iter_vars):
        raise Refused("its body is no block of others")
    return [_nest(statement) for statement in statements_of(func)]


def without_inlined_nests(nests: Sequence[Nest], parameters: Sequence[Any]) -> list[Nest]:
    """Without the nests whose elements are made where they are read."""
    left = list(nests)
    for nest in nests:
        if any(buffer.same_as(p) for buffer in nest.buffers for p in parameters):
            continue
        if not any(other.loads(buffer) for other in left for buffer in nest.buffers if other is not nest):
            return without_inlined_nests([other for other in left if other is not nest], parameters)
        if nest.reduced or not nest.is_plain or nest.is_long:
            continue
        readers = [other for other in left if other is not nest and other.loads(nest.buffers[0])]
        if _is_costly(nest) and (len(readers) > 1 or any(_reads_again(reader, nest.buffers[0]) for reader in readers)):
            continue
        if all(len(r.loads(nest.buffers[0])) * nest.size + r.size <= _LARGEST for r in readers):
            left = [_with_inlined(other, nest) if other in readers else other for other in left if other is not nest]
            return without_inlined_nests(left, parameters)
    return left


def made_again(nests: Sequence[Nest], parameters: Sequence[Any]) -> list[Nest]:
    """Without nests that hold elements for others, however dear these are and however often they are read."""
    for nest in nests:
        if nest.reduced or not nest.is_plain or nest.is_long or is_one_of(nest.buffers[0], parameters):
            continue
        readers = {id(other): len(other.loads(nest.buffers[0])) for other in nests}
        if all(other.size + readers[id(other)] * nest.size <= _LARGEST for other in nests):
            others = [other for other in nests if other is not nest]
            return made_again([_with_inlined(o, nest) if readers[id(o)] else o for o in others], parameters)
    return list(nests)


def _nest(statement: Any) -> Nest:
    loops: list[Any] = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize):
        raise Refused(f"loops over a {type(inner).__name__}")
    block = inner.block
    if list(block.alloc_buffers) or list(block.match_buffers):
        raise Refused(f"block {block.name_hint} has buffers of its own")
    is_plain = bool(loops) and runs_axes_in_loops(loops[0], block, len(list(block.iter_vars)))
    if not is_plain and not _runs_as_it_says(loops, inner):
        raise Refused(f"block {block.name_hint} does not run once for each of its points")
    kinds = {int(axis.iter_type) for axis in block.iter_vars}
    if not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        raise Refused(f"block {block.name_hint} runs in an order")
    stores = _stores(block.body)
    reduced = tuple(Axis(a.var, a.dom.extent) for a in block.iter_vars if int(a.iter_type) == tirx.IterVar.CommReduce)
    spatial = tuple(Axis(a.var, a.dom.extent) for a in block.iter_vars if int(a.iter_type) == tirx.IterVar.DataPar)
    nest = Nest(str(block.name_hint), spatial, reduced, () if block.init is None else _stores(block.init), stores)
    if bool(reduced) != bool(nest.inits) or len(nest.inits) not in (0, len(stores)):
        raise Refused(f"block {block.name_hint} does not say what its sums start from")
    if not reduced and any(nest.loads(buffer) for buffer in nest.buffers):
        raise Refused(f"block {block.name_hint} reads what it writes")
    return nest


def _runs_as_it_says(loops: Sequence[Any], realize: Any) -> bool:
    """Every axis is one loop over all of it, or has one value; loops of one step may be left out."""
    axes = list(realize.block.iter_vars)
    left = {loop.loop_var: loop for loop in loops}
    for axis, value in zip(axes, realize.iter_values, strict=True):
        loop = left.pop(value, None) if isinstance(value, tvm.ir.Var) else None
        extent = axis.dom.extent if loop is None else loop.extent
        is_first = isinstance(value, tirx.IntImm) and int(value) == 0 and isinstance(extent, tirx.IntImm)
        if loop is None and not (is_first and int(extent) == 1):
            return False
        if not tvm_ffi.structural_equal(extent, axis.dom.extent):
            return False
    return is_true(realize.predicate) and not any(_is_long(loop.extent) for loop in left.values())


def _stores(body: Any) -> tuple[Any, ...]:
    """The stores of a block; what is given a name in front of them is put where the name stands."""
    bound: dict[Any, Any] = {}
    stores: list[Any] = []
    for statement in list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(statement, tirx.Bind) and not stores:
            bound[statement.var] = substitute(statement.value, bound)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(substitute(statement, bound))
        else:
            raise Refused(f"a block with a {type(statement).__name__}")
    if len(stores) > 1 and not bound and any(_reads(store, other) for store in stores for other in stores):
        raise Refused("a block that reads what it has stored")
    return tuple(stores)


def _reads(store: Any, other: Any) -> bool:
    return any(load.source.same_as(other.buffer) for load in nodes_of(store.value, tvm.ir.TensorLoad))


def _is_costly(nest: Nest) -> bool:
    """Its elements are better made once."""
    calls = [call for store in nest.stores for call in nodes_of(store.value, tvm.ir.Call)]
    return any(short_name(call) in _COSTLY for call in calls)


def _reads_again(reader: Nest, buffer: Any) -> bool:
    """Some axis of the reader is not among the indices of a load: the element is read once for each of its values."""
    for load in reader.loads(buffer):
        used = {var for index in load.indices for var in nodes_of(index, tvm.ir.Var)}
        if any(axis.var not in used and _is_long(axis.extent) for axis in (*reader.spatial, *reader.reduced)):
            return True
    return bool(reader.reduced) and len(reader.loads(buffer)) > 1


def _is_long(extent: Any) -> bool:
    return not (isinstance(extent, tirx.IntImm) and int(extent) == 1)


def _with_inlined(reader: Nest, nest: Nest) -> Nest:
    (store,) = nest.stores

    def on_load(load: Any) -> Any:
        if not load.source.same_as(store.buffer):
            return load
        values = {axis.var: index for axis, index in zip(nest.spatial, load.indices, strict=True)}
        return substitute(store.value, values)

    def mapped(one: Any) -> Any:
        return structural_map(one, (tvm.ir.TensorLoad, on_load))

    return replace(reader, stores=tuple(map(mapped, reader.stores)), inits=tuple(map(mapped, reader.inits)))
