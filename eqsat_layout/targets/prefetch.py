"""Operands fetched from memory before their tiles need them (targets room).

In: a scheduled PrimFunc. Out: the same, in which tiles that read one panel of a large operand fetch the next panel,
each a part of it. Without that only the first tile waits for memory, which is idle while the others compute. What a
panel is and which tiles share it is read off the indices; panels that are not one piece of memory are left alone, as
are those that so many tiles share that nothing would be gained. Of an operand whose elements are broadcast, each tile
fetches what the next one reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.stages import Access
from eqsat_layout.tir.structural import structural_map, substitute

_PACE = 32  # products of vectors in the time that a line takes from memory
_SHARE = 0.25  # of the time of its tiles that a panel takes from memory, below which fetching costs more than it saves
_MOST = 32  # lines that one step fetches
_FEW = 16  # products of vectors for each line of the next tile
_READ, _SECOND_CACHE, _DATA = 0, 2, 1

_INSIDE = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)


def prefetch_panels(func: Any, machine: Machine) -> Any:
    """``func`` with the next panel of its large operands fetched while one is in use."""
    fetches = dict(_fetches(func.body, [], func.params, machine))
    if not fetches:
        return func

    def on_loop(loop: Any) -> Any:
        if loop.loop_var not in fetches:
            return loop
        body = tirx.SeqStmt([*fetches[loop.loop_var], loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)

    return func.with_body(structural_map(func.body, (tirx.For, on_loop)))


def _fetches(node: Any, loops: list[Any], params: Sequence[Any], machine: Machine) -> list[tuple[Any, list[Any]]]:
    """What each step of a reduction is to fetch, by the variable of the loop over steps."""
    if isinstance(node, tirx.For):
        return _fetches(node.body, [*loops, node], params, machine)
    if isinstance(node, tirx.SeqStmt):
        return [found for statement in node.seq for found in _fetches(statement, loops, params, machine)]
    if not isinstance(node, s_tir.SBlockRealize):
        return []
    if not isinstance(node.block.body, tirx.BufferStore):
        return _fetches(node.block.body, loops, params, machine)
    nest = _TileNest(node, loops)
    if not nest.steps:
        return []
    loads: list[Any] = []
    tvm_ffi.structural_walk(node.block.body.value, (tvm.ir.TensorLoad, loads.append))
    given = [load for load in loads if any(load.source.same_as(param) for param in params)]
    found = [fetch for load in given for fetch in nest.fetches(Access(load.source, tuple(load.indices)), machine)]
    return [(nest.steps[-1].loop_var, found)] if found else []


class _TileNest:
    """The update of a reduction and the loops around it: over ``tiles``, over ``steps``, and ``inside`` a step."""

    def __init__(self, realize: Any, loops: Sequence[Any]) -> None:
        axes = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
        self._reduced = [value for axis, value in axes if int(axis.iter_type) == tirx.IterVar.CommReduce]
        self._values = {axis.var: value for axis, value in axes}
        self.inside = [loop for loop in loops if loop.kind in _INSIDE]
        self._written = [loop for loop in self.inside if loop.kind == tirx.ForKind.UNROLLED]
        outside = [loop for loop in loops if loop.kind not in _INSIDE] if self.inside else []
        self.steps = [loop for loop in outside if _uses(self._reduced, loop)]
        self.tiles = [loop for loop in outside if not _uses(self._reduced, loop)]

    def fetches(self, load: Access, machine: Machine) -> list[Any]:
        """What is due of the load in a step; empty where that gains nothing."""
        indices = [substitute(index, self._values) for index in load.indices]
        tiles = [loop for loop in self.tiles if _iterations([loop]) > 1]
        in_vectors = any(_uses(indices, loop) for loop in self.inside if loop.kind == tirx.ForKind.VECTORIZED)
        if tiles and _uses(indices, tiles[-1]) and not in_vectors:
            return self._next_rows(indices, load, tiles, machine)
        return self._next_panel(indices, load, tiles, machine)

    def _next_rows(self, indices: Sequence[Any], load: Access, tiles: Sequence[Any], machine: Machine) -> list[Any]:
        """What the next tile reads in the same step: a line of every row."""
        if _read_first(indices, load, tiles) <= machine.l2_bytes:
            return []
        mover = tiles[-1]
        rows: list[dict[Any, Any]] = [{mover.loop_var: tirx.min(mover.loop_var + 1, mover.extent - 1)}]
        for loop in self._written:
            count = 1 if _uses(self._reduced, loop) else int(loop.extent)
            places = [tirx.const(place, loop.loop_var.ty.dtype) for place in range(count)]
            if _uses(indices, loop):
                rows = [{**row, loop.loop_var: place} for row in rows for place in places]
        few = len(rows) * _FEW > _iterations(self._written)
        if few or _moved_first(indices, load, mover) < len(rows) * machine.line_bytes:
            return []
        return [_fetch(load.buffer[tuple(substitute(index, row) for index in indices)]) for row in rows]

    def _next_panel(self, indices: Sequence[Any], load: Access, tiles: Sequence[Any], machine: Machine) -> list[Any]:
        """A part of what the tiles after these share."""
        if tiles and tiles[0].kind == tirx.ForKind.PARALLEL and not _uses(indices, tiles[0]):
            tiles = tiles[1:]  # every core reads all
        users = [loop for loop in tiles if _uses(indices, loop)]
        panel = self._panel(indices, load) * load.element_bytes
        whole = math.prod(extent or 0 for extent in load.shape) * load.element_bytes
        if not users or not machine.line_bytes <= panel <= machine.l2_bytes // 4 or whole <= machine.l2_bytes // 2:
            return []
        mover, sharing = users[-1], tiles[len(users) :]
        if tiles[: len(users)] != users:  # read again and again, from the cache
            return []
        if not _is_linear(indices, load, mover):
            return []
        turns = [*sharing, *self.steps]
        count, lines = _iterations(turns), panel // machine.line_bytes
        work = _iterations(self._written)
        each = max(-(-lines // count), min(work // _PACE, lines))
        if each > _MOST or lines * _PACE < _SHARE * count * work:
            return []
        start = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype) for loop in (*self.inside, *turns)}
        start[mover.loop_var] = tirx.min(mover.loop_var + 1, mover.extent - 1)
        *outer, last = (substitute(index, start) for index in indices)
        turn: Any = 0
        for loop in turns:
            turn = turn * loop.extent + loop.loop_var
        begin = max(0, count - -(-lines // each))  # late: what is fetched early drives out what is in use
        first = tirx.max(turn - begin, 0) * each
        step = machine.line_bytes // load.element_bytes
        return [
            _fetch(load.buffer[(*outer, last + tirx.min(first + number, lines - 1) * step)]) for number in range(each)
        ]

    def _panel(self, indices: Sequence[Any], load: Access) -> int:
        """Elements that one tile reads in all its steps; 0: they are not one piece of memory."""
        loops = [*self.inside, *self.steps]
        strides = tvm.sym.detect_linear_equation(_flat(indices, load), [loop.loop_var for loop in loops])[:-1]
        if not all(isinstance(stride, tirx.IntImm) for stride in strides):
            return 0
        moves = sorted((int(s), _iterations([loop])) for s, loop in zip(strides, loops, strict=False) if int(s))
        size = 1
        for stride, extent in moves:
            if extent > 1 and stride != size:
                return 0
            size *= extent
        return size if moves else 0


def _read_first(indices: Sequence[Any], load: Access, tiles: Sequence[Any]) -> int:
    """Bytes that tiles in turn read before they read any of them again."""
    moved = Access(load.buffer, tuple(indices))
    count = load.buffer_bytes
    for loop in tiles:
        is_linear = _is_linear(indices, load, loop)
        if not (is_linear or moved.stride(loop.loop_var) == 0) or not _uses(indices, loop):
            return count
        count //= _iterations([loop])
        if not is_linear:  # what is read moves with the outer ones of the fused loops only
            return count
    return load.buffer_bytes


def _is_linear(indices: Sequence[Any], load: Access, loop: Any) -> bool:
    """The address grows by the same with every iteration; not so where the loop is several loops fused."""
    return bool(tvm.sym.detect_linear_equation(_flat(indices, load), [loop.loop_var]))


def _moved_first(indices: Sequence[Any], load: Access, mover: Any) -> int:
    """Bytes between the first elements that the first two tiles read; 0 where that depends on data."""
    flat = _flat(indices, load)
    variables = tirx.analysis.undefined_vars(flat)
    zeros = {var: tirx.const(0, var.ty.dtype) for var in variables}
    ones = zeros | {mover.loop_var: tirx.const(1, mover.loop_var.ty.dtype)}
    moved = tvm.sym.Analyzer().simplify(substitute(flat, ones) - substitute(flat, zeros))
    return abs(int(moved)) * load.element_bytes if isinstance(moved, tirx.IntImm) else 0


def _flat(indices: Sequence[Any], load: Access) -> Any:
    flat, *rest = indices
    for index, extent in zip(rest, load.shape[1:], strict=True):
        flat = flat * (extent or 0) + index
    return flat


def _fetch(element: Any) -> Any:
    address = tirx.address_of(element)
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, _READ, _SECOND_CACHE, _DATA))


def _iterations(loops: Sequence[Any]) -> int:
    """Of all loops together; symbolic ones count as 64."""
    return math.prod(int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 64 for loop in loops)


def _uses(values: Sequence[Any], loop: Any) -> bool:
    found = [False]

    def on_var(node: Any) -> None:
        found[0] = found[0] or node.same_as(loop.loop_var)

    for value in values:
        tvm_ffi.structural_walk(value, (tvm.ir.Var, on_var))
    return found[0]
