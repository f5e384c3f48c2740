"""Loops that TVM wrote as parallel, each iteration a walk along memory: neighbours walk together, in vectors.

In: a PrimFunc whose loops are not those of blocks (running sums along an axis). Out: the same with the iterations of
parallel loops, which depend on none of each other, as lanes; what one does keeps its order, so results are the same.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.tir.structural import mapped_body, nodes_of, structural_map, substitute

_VECTORS: Final = 4
"""Side by side: the additions of one wait for each other."""


def neighbours_in_lanes(func: Any, machine: CpuMachine) -> Any:
    """``func`` with such loops in vectors; refused where there is none."""
    done: list[Any] = []

    def on_loop(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        done.append(_in_lanes(loop, machine))
        return done[-1]

    changed = mapped_body(func, (tirx.For, on_loop))
    if not done:
        raise Refused("no loop is written as parallel")
    return changed


def _in_lanes(loop: Any, machine: CpuMachine) -> Any:
    extent = _number(loop.extent)
    if _number(loop.min) != 0:
        raise Refused("a loop that does not start at 0")
    inner = _inner_extent(loop, extent)
    kind = loop.loop_var.ty
    row, lane = tvm.ir.Var("row", kind), tvm.ir.Var("lane", kind)
    whole = substitute(loop.body, {loop.loop_var: row * _like(row, inner) + lane})
    body = _with_short_indices(whole, {row: extent // inner, lane: inner})
    stores = _checked(body, lane)
    width = _VECTORS * min(machine.lanes(tvm.runtime.DataType(str(s.value.ty.dtype)).itemsize) for s in stores)
    width = min(width, inner)
    blocks, left = divmod(inner, width)
    first = _loops(body, row, lane, (extent // inner, 0, blocks, width))
    return tirx.SeqStmt([first, _loops(body, row, lane, (extent // inner, blocks * width, 1, left))]) if left else first


def _inner_extent(loop: Any, extent: int) -> int:
    """The extent of the loop's fastest axis, no longer than one row of memory."""
    parts = [node for node in nodes_of(loop.body, tirx.FloorMod) if node.a.same_as(loop.loop_var)]
    sizes = [_number(node.b) for node in parts]
    rows = [_number(store.buffer.shape[-1]) for store in nodes_of(loop.body, tirx.BufferStore) if store.buffer.shape]
    inner = math.gcd(extent, *sizes, *rows)
    if inner < 2:
        raise Refused("a loop over no axis whose elements are neighbours")
    return inner


def _with_short_indices(body: Any, extents: dict[Any, int]) -> Any:
    """Indices without the quotients that are known."""
    analyzer = tvm.sym.Analyzer()
    for var, extent in extents.items():
        analyzer.bind(var, tvm.ir.Range(_like(var, 0), _like(var, extent)))
    for loop in nodes_of(body, tirx.For):
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def short(indices: Any) -> list[Any]:
        return [analyzer.simplify(index) for index in indices]

    return structural_map(
        body,
        (tvm.ir.TensorLoad, lambda load: tirx.BufferLoad(load.source, short(load.indices))),
        (tirx.BufferStore, lambda store: tirx.BufferStore(store.buffer, store.value, short(store.indices))),
    )


def _checked(body: Any, lane: Any) -> list[Any]:
    """The stores; refused where lanes would do more than to step through the last axis."""
    for statement in nodes_of(body, tirx.Stmt):
        if not isinstance(statement, tirx.For | tirx.SeqStmt | tirx.BufferStore):
            raise Refused(f"a loop over a {type(statement).__name__}")
    for loop in nodes_of(body, tirx.For):
        if loop.kind != tirx.ForKind.SERIAL or any(v.same_as(lane) for v in nodes_of(loop.extent, tvm.ir.Var)):
            raise Refused("loops inside that are not the same for all neighbours")
    if nodes_of(body, tvm.ir.Call):
        raise Refused("calls, which may be none for vectors")
    stores = nodes_of(body, tirx.BufferStore)
    for store in stores:
        _check_step(store.indices, lane, (1,))
    for load in nodes_of(body, tvm.ir.TensorLoad):
        _check_step(load.indices, lane, (0, 1))
    if not stores:
        raise Refused("a loop that stores nothing")
    return stores


def _check_step(indices: Any, lane: Any, allowed: tuple[int, ...]) -> None:
    analyzer = tvm.sym.Analyzer()
    for place, index in enumerate(reversed(indices)):
        step = analyzer.simplify(substitute(index, {lane: lane + _like(lane, 1)}) - index)
        if _number(step) not in (allowed if place == 0 else (0,)):
            raise Refused("neighbours that do not lie side by side")


def _loops(body: Any, row: Any, lane: Any, sizes: tuple[int, int, int, int]) -> Any:
    """Over rows and blocks of lanes, from a start on."""
    rows, start, blocks, width = sizes
    both, inner = tvm.ir.Var("both", row.ty), tvm.ir.Var("inner", lane.ty)
    place = tirx.floormod(both, _like(both, blocks)) * _like(both, width) + _like(both, start) + inner
    own = substitute(body, {row: tirx.floordiv(both, _like(both, blocks)), lane: place})
    own = _with_short_indices(own, {both: rows * blocks, inner: width})
    own = _renamed(own)
    lanes = tirx.For(inner, _like(inner, 0), _like(inner, width), tirx.ForKind.VECTORIZED, own)
    return tirx.For(both, _like(both, 0), _like(both, rows * blocks), tirx.ForKind.PARALLEL, lanes)


def _renamed(body: Any) -> Any:
    """A copy with loop variables of its own, as the statement occurs twice."""

    def on_loop(loop: Any) -> Any:
        own = tvm.ir.Var(loop.loop_var.name, loop.loop_var.ty)
        return tirx.For(own, loop.min, loop.extent, loop.kind, substitute(loop.body, {loop.loop_var: own}))

    return structural_map(body, (tirx.For, on_loop))


def _number(expr: Any) -> int:
    if not isinstance(expr, tirx.IntImm):
        raise Refused("a size or a step that is no number")
    return int(expr.value)


def _like(var: Any, value: int) -> Any:
    return tirx.const(value, str(var.ty.dtype))
