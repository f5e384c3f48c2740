"""Prefetch of operands to L2 before their tiles need them.

In: a scheduled PrimFunc. Out: the same, in which tiles that read one panel of a large operand prefetch the next panel,
each an equal part of it; else the first tile waits for memory, which is idle while the others compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.accesses import StageAccess, depends_on
from eqsat_layout.tir.computation import SYMBOL_SIZE
from eqsat_layout.tir.structural import is_one_of, mapped_body, nodes_of, structural_map, substitute

_PASSES = 16  # over data that fit L2, up to which it counts that the first one reads another core's
_SHARE = 0.05  # of the time of its tiles that a panel takes from memory, below which prefetch costs more than it saves
_MOST = 32  # lines that one step prefetches
_FEW = 8  # products of vectors for each line of the next tile
_STREAM = 256  # bytes of a row in one piece, which the hardware prefetches by itself in time from L2
_READ, _TO_L2, _DATA = 0, 2, 1  # arguments of LLVM's prefetch: no write, locality, no code

_INSIDE = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)


def prefetch_panels(func: Any, machine: CpuMachine) -> Any:
    """``func`` with prefetch of the next panel of its large operands while one is in use.

    What a panel is and which tiles share it is read off the indices. A panel may lie in several pieces of memory, but
    not in pieces that a single step reads; those that so many tiles share that nothing would be gained are left alone,
    and those of a single tile of few rows, which leaves the caches no time: each prefetch takes that of a load (a row
    by 512 x 1000 took 28 us in place of 25; Zen 4).
    Of an operand whose elements are broadcast, each tile prefetches what the next one reads: where it comes from memory
    or, since each core reads it only a few times, from the cache of the core that made it.
    """
    prefetches = dict(_prefetches(func.body, [], func.params, machine))
    if not prefetches:
        return func

    def on_loop(loop: Any) -> Any:
        if loop.loop_var not in prefetches:
            return loop
        body = tirx.SeqStmt([*prefetches[loop.loop_var], loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)

    return mapped_body(func, (tirx.For, on_loop))


def _prefetches(node: Any, loops: list[Any], params: Sequence[Any], machine: CpuMachine) -> list[tuple[Any, list[Any]]]:
    """What each step of a reduction is to prefetch, by the variable of the loop over steps."""
    if isinstance(node, tirx.For):
        return _prefetches(node.body, [*loops, node], params, machine)
    if isinstance(node, tirx.SeqStmt):
        return [found for statement in node.seq for found in _prefetches(statement, loops, params, machine)]
    if not isinstance(node, s_tir.SBlockRealize):
        return []
    if not isinstance(node.block.body, tirx.BufferStore):
        return _prefetches(node.block.body, loops, params, machine)
    tiled = _TiledLoops(node, loops)
    if not tiled.steps or tiled.is_inside_out:
        return []
    loads = nodes_of(node.block.body.value, tvm.ir.TensorLoad)
    operands = [param for param in params if not param.same_as(node.block.body.buffer)]
    given = [load for load in loads if load.indices and is_one_of(load.source, operands)]
    found = [one for load in given for one in tiled.prefetches(StageAccess(load.source, tuple(load.indices)), machine)]
    return [(tiled.steps[-1].loop_var, found)] if found else []


class _TiledLoops:
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
        self.is_inside_out = outside[-len(self.steps) :] != self.steps
        self._ranges = tvm.sym.Analyzer()
        for loop in loops:
            self._ranges.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def prefetches(self, load: StageAccess, machine: CpuMachine) -> list[Any]:
        """What is due of the load in a step; empty where that gains nothing."""
        indices = (self._ranges.simplify(substitute(index, self._values)) for index in load.indices)
        load = StageAccess(load.buffer, tuple(indices))
        tiles = [loop for loop in self.tiles if _iterations([loop]) > 1]
        in_vectors = any(load.uses(loop.loop_var) for loop in self.inside if loop.kind == tirx.ForKind.VECTORIZED)
        if tiles and load.uses(tiles[-1].loop_var) and not in_vectors:
            return self._next_rows(load, tiles, machine)
        return self._next_panel(load, tiles, machine)

    def _next_rows(self, load: StageAccess, tiles: Sequence[Any], machine: CpuMachine) -> list[Any]:
        """What the next tile reads in the same step: a line of every row, or in turns of some of them."""
        loops = [*self.inside, *self.steps, *self.tiles]
        if _read_first(load, tiles, loops) <= machine.l2_working_set:
            stream = self._run(load, [*self._written, *self.steps])
            is_followed = stream >= _STREAM and load.buffer_bytes <= machine.l2_working_set
            if is_followed or _passes(load, tiles, machine) > _PASSES:
                return []
        mover, work = tiles[-1], _iterations(self._written)
        rows = [loop for loop in self._written if not _uses(self._reduced, loop) and load.uses(loop.loop_var)]
        count, turns = _iterations(rows), 1
        again = machine.line_bytes // min(machine.line_bytes, max(1, self._run(load, self._written)))
        if count * again * _FEW > work and self._reads_on(load, machine):
            turns, again = again, 1
        each = -(-count // turns)
        if each * again * _FEW > work or _moved_first(load, mover, loops) < count * machine.line_bytes:
            return []
        start = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype) for loop in self._written}
        start[mover.loop_var] = tirx.min(mover.loop_var + 1, mover.extent - 1)
        first = tirx.floormod(self.steps[-1].loop_var, turns) * each if turns > 1 else tirx.const(0, "int64")
        places = [start | _places(rows, tirx.min(first + number, count - 1)) for number in range(each)]
        return [prefetch(load.buffer[tuple(substitute(index, place) for index in load.indices)]) for place in places]

    def _reads_on(self, load: StageAccess, machine: CpuMachine) -> bool:
        """Iterations of the innermost loop over steps read a line after the other of each row, which is no window."""
        steps = [loop for loop in (*self.steps, *self._written) if _uses(self._reduced, loop)]
        others = [loop for loop in (*self.tiles, *self._written) if loop not in steps]
        slides = (
            any(depends_on(index, loop.loop_var) for loop in steps if _iterations([loop]) > 1)
            and any(depends_on(index, loop.loop_var) for loop in others)
            for index in load.indices
        )
        return not any(slides) and self._run(load, [*self._written, self.steps[-1]]) >= machine.line_bytes

    def _run(self, load: StageAccess, loops: Sequence[Any]) -> int:
        """Bytes of a row that are read by such loops over the reduction, as far as they are one piece of memory."""
        reducing = [loop for loop in loops if _uses(self._reduced, loop)]
        elements, _ = _in_one_piece([(load.stride(loop.loop_var) or 0, loop) for loop in reducing])
        return elements * load.element_bytes

    def _next_panel(self, load: StageAccess, tiles: Sequence[Any], machine: CpuMachine) -> list[Any]:
        """A part of what the tiles after these share."""
        if tiles and tiles[0].kind == tirx.ForKind.PARALLEL and not load.uses(tiles[0].loop_var):
            tiles = tiles[1:]  # every core reads all
        users = [loop for loop in tiles if load.uses(loop.loop_var)]
        panel = self._panel(load, machine)
        if not users or panel is None or load.buffer_bytes <= machine.l2_working_set // 2:
            return []
        others = tiles[len(users) :]
        if tiles[: len(users)] != users:  # read again and again, from the cache
            return []
        if not _is_linear(_without_overlap(load), users[-1]):
            return []
        turns = [*others, *self.steps]
        count, work = _iterations(turns), _iterations(self._written)
        each = -(-panel.lines // count)
        from_memory, from_cache = (
            panel.lines * _products_per_line(bandwidth, machine)
            for bandwidth in (machine.memory_bandwidth, machine.last_level_bandwidth)
        )
        if each > _MOST or from_memory < _SHARE * count * work:
            return []
        if _iterations(others) < 2 and from_cache > count * work:  # the tile waits for its own panel all the time
            return []
        begin = max(0, count - -(-panel.lines // each))
        first = tirx.max(_numbered(turns) - begin, 0) * each
        start = {loop.loop_var: tirx.const(0, loop.loop_var.ty.dtype) for loop in (*self.inside, *turns)}
        start |= _following(users)
        return [panel.prefetch(tirx.min(first + number, panel.lines - 1), start) for number in range(each)]

    def _panel(self, load: StageAccess, machine: CpuMachine) -> _Panel | None:
        """What one tile reads in all its steps; ``None`` if that lies in small pieces, or would fill the cache."""
        loops = [*self.inside, *self.steps]
        equation = tvm.sym.detect_linear_equation(_flat(load), [loop.loop_var for loop in loops])
        if not equation or not all(isinstance(stride, tirx.IntImm) for stride in equation[:-1]):
            return None
        size, runs = _in_one_piece(list(zip(map(int, equation[:-1]), loops, strict=True)))
        lines = size * load.element_bytes // machine.line_bytes
        if not lines or lines * _iterations(runs) * machine.line_bytes > machine.l2_working_set // 4:
            return None
        if any(loop not in self._written or _uses(self._reduced, loop) for loop in runs):
            return None
        return _Panel(load, lines, tuple(runs), machine.line_bytes // load.element_bytes)


@dataclass(frozen=True)
class _Panel:
    """For every iteration of ``runs`` one piece of memory, of ``size`` lines with ``step`` elements each."""

    load: StageAccess
    size: int
    runs: tuple[Any, ...]
    step: int

    @property
    def lines(self) -> int:
        """The lines of all pieces together."""
        return self.size * _iterations(self.runs)

    def prefetch(self, number: Any, start: Mapping[Any, Any]) -> Any:
        """The prefetch of one line of a panel, whose place is that of the loops at ``start``."""
        if self.runs:
            start = {**start, **_places(self.runs, number // self.size)}
            number = number % self.size
        *outer, last = (substitute(index, start) for index in self.load.indices)
        return prefetch(self.load.buffer[(*outer, last + number * self.step)])


def _products_per_line(bandwidth: float, machine: CpuMachine) -> float:
    """Products of vectors in the time that a line takes from memory, or a cache, of such a bandwidth."""
    return machine.line_bytes / bandwidth * machine.clock * machine.vectors_per_cycle


def _in_one_piece(strides: Sequence[tuple[int, Any]]) -> tuple[int, list[Any]]:
    """Elements that loops with such strides read in one piece of memory, and the loops over other pieces."""
    size, apart = 1, list[Any]()
    for stride, loop in sorted(strides, key=lambda pair: pair[0]):
        extent = _iterations([loop])
        if stride == size:
            size *= extent
        elif stride and extent > 1:
            apart.append(loop)
    return size, apart


def _numbered(loops: Sequence[Any]) -> Any:
    """The number of an iteration of all loops together, in their order."""
    number: Any = 0
    for loop in loops:
        number = number * loop.extent + loop.loop_var
    return number


def _places(loops: Sequence[Any], number: Any) -> dict[Any, Any]:
    """The iteration of every loop that has this number."""
    places: dict[Any, Any] = {}
    for loop in reversed(loops):
        places[loop.loop_var] = tirx.floormod(number, loop.extent)
        number = tirx.floordiv(number, loop.extent)
    return places


def _following(loops: Sequence[Any]) -> dict[Any, Any]:
    """The iteration of every loop after this one; no more than the last one of the outermost."""
    first, *rest = loops
    places: dict[Any, Any] = {}
    carry: Any = 1
    for loop in reversed(rest):
        places[loop.loop_var] = tirx.floormod(loop.loop_var + carry, loop.extent)
        carry = tirx.floordiv(loop.loop_var + carry, loop.extent)
    return {**places, first.loop_var: tirx.min(first.loop_var + carry, first.extent - 1)}


def _read_first(load: StageAccess, tiles: Sequence[Any], loops: Sequence[Any]) -> int:
    """Bytes that tiles in turn read before they read any of them again. Indices are of ``loops``."""
    count = load.buffer_bytes
    for loop in tiles:
        is_linear = _is_linear(load, loop)
        if not (is_linear or load.stride(loop.loop_var) == 0) or not load.uses(loop.loop_var):
            return count
        if not is_linear and _moved_first(load, loop, loops):  # with the inner ones of the fused loops
            return count
        count //= _iterations([loop])
        if not is_linear:  # what is read moves with the outer ones of the fused loops only
            return count
    return load.buffer_bytes


def _passes(load: StageAccess, tiles: Sequence[Any], machine: CpuMachine) -> int:
    """How many times a core reads all that it reads."""
    others = [loop for loop in tiles if not load.uses(loop.loop_var)]
    shared = [loop for loop in others if loop.kind == tirx.ForKind.PARALLEL]
    return _iterations(others) // min(machine.cores, _iterations(shared))


def _is_linear(load: StageAccess, loop: Any) -> bool:
    """The address grows by the same with every iteration; not so where the loop is several loops fused."""
    return bool(tvm.sym.detect_linear_equation(_flat(load), [loop.loop_var]))


def _without_overlap(load: StageAccess) -> StageAccess:
    """As if the last tile of an axis did not begin in the one before."""
    return StageAccess(load.buffer, tuple(structural_map(index, (tirx.Min, _unbounded)) for index in load.indices))


def _unbounded(smaller: Any) -> Any:
    return smaller.a if isinstance(smaller.b, tirx.IntImm) else smaller


def _moved_first(load: StageAccess, mover: Any, loops: Sequence[Any]) -> int:
    """Bytes between the first elements that the first two tiles read; 0 where that depends on data. Indices are of
    ``loops``, and of sizes, each of which counts as :data:`SYMBOL_SIZE`: where loops are fused, these divide."""
    flat = _flat(load)
    counters = {loop.loop_var for loop in loops}
    variables = tirx.analysis.undefined_vars(flat)
    zeros = {var: tirx.const(0 if var in counters else SYMBOL_SIZE, var.ty.dtype) for var in variables}
    ones = zeros | {mover.loop_var: tirx.const(1, mover.loop_var.ty.dtype)}
    moved = tvm.sym.Analyzer().simplify(substitute(flat, ones) - substitute(flat, zeros))
    return abs(int(moved)) * load.element_bytes if isinstance(moved, tirx.IntImm) else 0


def _flat(load: StageAccess) -> Any:
    flat, *rest = load.indices
    for index, extent in zip(rest, load.shape[1:], strict=True):
        flat = flat * (extent or 0) + index
    return flat


def prefetch(element: Any) -> Any:
    """The line of memory of an element is wanted in L2 soon."""
    address = tirx.address_of(element)
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, _READ, _TO_L2, _DATA))


def _iterations(loops: Sequence[Any]) -> int:
    """The iterations of all loops together; symbolic extents count as :data:`SYMBOL_SIZE`."""
    return math.prod(int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else SYMBOL_SIZE for loop in loops)


def _uses(values: Sequence[Any], loop: Any) -> bool:
    return any(depends_on(value, loop.loop_var) for value in values)
