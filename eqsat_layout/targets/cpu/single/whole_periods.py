"""Products with matrices whose elements are known, for results that end in the middle of such a matrix.

In: an unscheduled PrimFunc, and how others are scheduled. Out: the kernel in two parts, of which the first has the
results of whole matrices only. Both can be written out as sums then (:mod:`.matrix_sums`): 29 rows by F(4, 3) are seven
times four, and one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.passes.matrix_literals import literals_of
from eqsat_layout.targets.cpu.symbolic.free_axes import FreeAxis, axis_at
from eqsat_layout.targets.cpu.symbolic.parts import Span, in_whole, part_of
from eqsat_layout.targets.schedules.stages import ROOT, Stage, new_schedule, stages_of
from eqsat_layout.tir.blocks import block_of, sequence, statements_of


def in_whole_periods(func: Any, schedule: Callable[[Any], Any]) -> Any:
    """The kernel; refused where no matrix is known, or all results along its rows are of whole matrices."""
    if not literals_of(func):
        raise Refused("no matrix is known")
    sch = new_schedule(func)
    whole, stages = sch.mod["main"], stages_of(sch)
    axis, extent, left = _broken_axis(whole, stages)
    spans = [Span(axis, extent - left, 0), Span(axis, left, extent - left)]
    parts = [in_whole(schedule(part_of(whole, [span])), whole, [span]) for span in spans]
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], ROOT, sequence(parts)))
    return tirx.PrimFunc(whole.params, root, ret_type=func.ret_type, attrs=func.attrs)


def _broken_axis(func: Any, stages: Sequence[Stage]) -> tuple[FreeAxis, int, int]:
    """An axis of the results along which the rows of a matrix come again and again, how many elements it has, and how
    many of them are left behind the last whole matrix."""
    if not all(stage.simple for stage in stages):
        raise Refused("stages of other loops")
    written = {stage.write.buffer for stage in stages}
    results = [param for param in func.params if param in written]
    blocks = [block_of(statement) for statement in statements_of(func)]
    for stage in stages:
        for number, own in enumerate(stage.axes):
            extent = own.extent or 0
            period = 0 if stage.matrix is None or own.reduce else stage.matrix.load.period(own.var)
            left = extent % period if 0 < period < extent else 0
            axis = axis_at((stage.name, number), extent, blocks, results) if left else None
            if axis is not None:
                return axis, extent, left
    raise Refused("the results are of whole matrices")
