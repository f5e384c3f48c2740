"""Rows of any length in whole vectors.

In: a schedule over stages along the last axis of a tensor, whose extent no vector divides. Out: a new one, in which
that axis is one of vectors and one inside a vector; the last vector overlaps the one before.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.targets.schedules.accesses import StageAxis
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.cut_axes import cut_axes
from eqsat_layout.targets.schedules.stages import Stage, stages_of


def in_whole_vectors(sch: Any, width: int, extent: int | None = None) -> Any:
    """The new schedule; ``None`` where vectors of ``width`` elements divide the rows, or stages are of other kinds.

    ``extent``: of the rows, if it is not that of the last axis of the last stage. A last vector that would run over
    the end starts earlier: what lies in two is made twice, to the same value, and sums skip it the second time.
    """
    stages = stages_of(sch)
    if extent is None:
        extent = stages[-1].axes[-1].extent if stages[-1].axes else None
    if extent is None or extent <= width or extent % width == 0:
        return None
    if not all(stage.simple and stage.is_plain and len(stage.reduced) <= 1 for stage in stages):
        return None
    along = [(stage.name, _row_axis(stage)) for stage in stages]
    rows = [(name, axis.var) for name, axis in along if axis.extent == extent]
    return unless_refused(lambda: cut_axes(sch, rows, width))


def _row_axis(stage: Stage) -> StageAxis:
    """The axis of a stage that runs along the rows, if any does."""
    return stage.reduced[0] if stage.is_reduction else stage.axes[-1]
