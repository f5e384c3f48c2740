"""Kernels of symbolic sizes: parts of known sizes, one after the other.

In: an unscheduled PrimFunc with symbolic sizes, and how a function of known ones is scheduled. Out: the kernel, whose
loops go over parts of a few sizes, each with the schedule that it would have alone: its tiles of registers, its
vectors, the matrix unit. What is left of rows at the end is done in a smaller part, which may make its last row several
times; along vectors the last part overlaps the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import s_tir, sym, tirx
from tvm.ir import Range, Var

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.symbolic.free_axes import FreeAxis, free_axes
from eqsat_layout.targets.cpu.symbolic.parts import Span, in_whole, part_of
from eqsat_layout.targets.schedules.accesses import as_int
from eqsat_layout.targets.schedules.stages import ROOT, Stage, new_schedule, stages_of
from eqsat_layout.tir.blocks import block_of, statements_of
from eqsat_layout.tir.structural import nodes_of, structural_map

_ROWS = 64  # of a part of a product: enough to read its weights for
_LEFT = (16, 32)  # of one for what is left: the weights are read once for it, however few rows there are
_FEW_ROWS = (1, 8)  # of one for windows of unknown size, whose code is to be short
_FEW = 8  # of a part of other kernels
_LONG = 1 << 22  # iterations of a part from which on its own loops are parallel, and not those over parts
_SHORT = 4096  # iterations of all, below which starting threads costs more than it saves

Scheduler = Callable[[Any, CpuMachine], Any]


def has_symbols(func: Any) -> bool:
    """Some block runs over an axis of symbolic size."""
    blocks = nodes_of(func.body, s_tir.SBlock)
    return any(as_int(axis.dom.extent) is None for block in blocks for axis in block.iter_vars)


def kernel_in_parts(func: Any, machine: CpuMachine, schedule: Scheduler) -> Any:
    """``func`` in parts; refused where no axis is free."""
    sch = new_schedule(func)
    stages = stages_of(sch)
    if not all(stage.simple for stage in stages):
        raise Refused("stages of other loops")
    return _Kernel(sch.mod["main"], stages, machine, schedule).function(func)


@dataclass(frozen=True)
class _Sizes:
    """Of parts along an axis: as many ``large`` ones as there are, if any, and of ``small`` ones, ascending, for the
    rest: the largest, and at the end the smallest that holds all that is left."""

    axis: FreeAxis
    small: tuple[int, ...] = (1,)
    large: int | None = None

    @property
    def most(self) -> int:
        """The size of the largest part."""
        return self.large or self.small[-1]


class _Kernel:
    """One kernel while it is put together."""

    def __init__(self, whole: Any, stages: Sequence[Stage], machine: CpuMachine, schedule: Scheduler) -> None:
        self._whole, self._stages, self._machine, self._schedule = whole, stages, machine, schedule
        written = {stage.write.buffer for stage in stages}
        results = [param for param in whole.params if param in written]
        axes = free_axes([block_of(statement) for statement in statements_of(whole)], results)
        if not axes:
            raise Refused("no axis along which every element is made by itself")
        self._main = max(stages, key=lambda stage: (stage.is_reduction, stage.domain))
        lane = max((n for n, extent in enumerate(results[0].ty.shape) if as_int(extent) != 1), default=-1)
        self._vector = next((axis for axis in axes if axis.dims[results[0]] + axis.count - 1 == lane), None)
        self._sizes = self._sizes_of(axes)
        work = math.prod(sizes.most for sizes in self._sizes) * _known(self._main.axes)
        self._is_parallel_inside = work >= _LONG

    def function(self, func: Any) -> Any:
        """The PrimFunc."""
        body = self._parts(self._sizes)
        if self._vector is not None and _least(self._vector.extent) < self._lanes:
            few = [_Sizes(one.axis, (1,) if one.axis is self._vector else one.small[-1:]) for one in self._sizes]
            body = tirx.IfThenElse(self._vector.extent >= self._lanes, body, self._parts(few))
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], ROOT, body))
        return tirx.PrimFunc(self._whole.params, root, ret_type=func.ret_type, attrs=func.attrs)

    @property
    def _lanes(self) -> int:
        return self._machine.lanes(self._main.write.element_bytes)

    def _sizes_of(self, axes: Sequence[FreeAxis]) -> list[_Sizes]:
        """Several rows at a time of the axis along which they share most; one element of other axes."""
        others = [axis for axis in axes if axis is not self._vector]
        shared = [axis for axis in others if self._is_shared(axis)]
        rows = next(reversed(shared or others), None)
        sizes = [_Sizes(axis, (self._lanes,) if axis is self._vector else (1,)) for axis in axes]
        if rows is None:
            return sizes
        number, beside = axes.index(rows), self._beside(rows)
        if not shared:
            sizes[number] = _Sizes(rows, (_rounded(_FEW / beside),))
            return sizes
        if self._main.has_open_window:
            sizes[number] = _Sizes(rows, _FEW_ROWS)
            return sizes
        large = _rounded(_ROWS / beside)
        small = sorted({size for few in _LEFT if (size := _rounded(few / beside)) < large})
        sizes[number] = _Sizes(rows, tuple(small), large) if small else _Sizes(rows, (large,))
        return sizes

    def _is_shared(self, axis: FreeAxis) -> bool:
        """An operand of the reduction is the same for all elements along the axis."""
        variables = self._variables(axis)
        uses = [any(load.uses(var) for var in variables) for load in self._main.loads]
        return self._main.is_reduction and any(uses) and not all(uses)

    def _variables(self, axis: FreeAxis) -> list[Any]:
        first = axis.iters.get(self._main.name)
        return [] if first is None else [one.var for one in self._main.axes[first : first + axis.count]]

    def _beside(self, rows: FreeAxis) -> int:
        """Rows that there are for one element of the axis."""
        variables = self._variables(rows)
        same = [load for load in self._main.loads if not any(load.uses(var) for var in variables)]
        *others, _ = [axis for axis in self._main.spatial if axis.extent != 1]
        return _known([axis for axis in others if not any(load.uses(axis.var) for load in same)])

    def _parts(self, sizes: Sequence[_Sizes]) -> Any:
        """Loops over all parts: one, but for windows of unknown size, whose indices would be quotients of quotients."""
        counts = [self._count(one).astype("int64") for one in sizes]  # of kernels whose symbols are int32 too
        apart = [Var("part", "int64") for _ in counts[2:]] if self._main.has_open_window else []
        inner = list(zip(apart, counts[len(counts) - len(apart) :], strict=True))
        counts = counts[: len(counts) - len(apart)]
        total = math.prod(counts[1:], start=counts[0])
        task = Var("part", "int64")
        numbers: list[Any] = []
        rest: Any = task
        for count in reversed(counts[1:]):
            numbers.insert(0, tirx.floormod(rest, count))
            rest = tirx.floordiv(rest, count)
        body = self._choice(sizes, [rest, *numbers, *apart], [])
        for number, count in reversed(inner):
            body = tirx.For(number, tirx.IntImm("int64", 0), count, tirx.ForKind.SERIAL, body)
        is_parallel = (
            self._machine.cores > 1
            and not self._is_parallel_inside
            and sum(stage.domain for stage in self._stages) >= _SHORT
        )
        kind = tirx.ForKind.PARALLEL if is_parallel else tirx.ForKind.SERIAL
        return tirx.For(task, tirx.IntImm("int64", 0), total, kind, body)

    def _count(self, sizes: _Sizes) -> Any:
        extent, size = sizes.axis.extent, sizes.small[-1]
        if sizes.large is None:
            return _ceiling(extent, size)
        return tirx.floordiv(extent, sizes.large) + _ceiling(tirx.floormod(extent, sizes.large), size)

    def _choice(self, sizes: Sequence[_Sizes], numbers: Sequence[Any], spans: Sequence[Span]) -> Any:
        """The parts of these numbers along the axes."""
        if len(spans) == len(sizes):
            return self._part(spans)
        one, number = sizes[len(spans)], numbers[len(spans)]

        def chosen(size: int, first: Any, *, is_clamped: bool = False) -> Any:
            span = Span(one.axis, size, first, is_clamped and size > 1)
            return self._choice(sizes, numbers, [*spans, span])

        extent, size = one.axis.extent, one.small[-1]
        if one.axis is self._vector:
            return chosen(size, tirx.min(number * size, extent - size))
        whole = 0 if one.large is None else tirx.floordiv(extent, one.large)
        first = number * size if one.large is None else whole * one.large + (number - whole) * size
        found = chosen(size, first, is_clamped=True)
        for smaller in reversed(one.small[:-1]):
            found = tirx.IfThenElse(extent - first <= smaller, chosen(smaller, first, is_clamped=True), found)
        if one.large is not None:
            found = tirx.IfThenElse(number < whole, chosen(one.large, number * one.large), found)
        return found

    def _part(self, spans: Sequence[Span]) -> Any:
        part = part_of(self._whole, spans)
        machine = self._machine if self._is_parallel_inside else replace(self._machine, cores=1)
        scheduled = self._schedule(part, machine)
        done = in_whole(scheduled, self._whole, spans)
        return done if self._is_parallel_inside else structural_map(done, (tirx.For, _serial))


def _serial(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body, None, loop.annotations)


def _least(extent: Any) -> int:
    """What it is at least, where anything is done: of ``48 * n < 16`` TVM knows that it is 0, and divides by it."""
    analyzer = sym.Analyzer()
    for var in nodes_of(extent, Var):
        analyzer.bind(var, Range.from_min_extent(*(tirx.const(n, str(var.ty.dtype)) for n in (1, (1 << 31) - 1))))
    return int(analyzer.const_int_bound(extent).min_value)


def _known(axes: Sequence[Any]) -> int:
    """Iterations over those axes whose size is known."""
    return math.prod(axis.extent or 1 for axis in axes)


def _rounded(number: float) -> int:
    """The next power of two."""
    return 1 << max(0, math.ceil(math.log2(number)))


def _ceiling(number: Any, size: int) -> Any:
    return number if size == 1 else tirx.floordiv(number + (size - 1), size)
