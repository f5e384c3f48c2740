"""Rows that are numbered by one axis in some stages and by several in others, numbered by one.

In: a schedule. Out: a new one in which reductions of rows number them as their readers do: after a change of layouts
these may see images and heads as one axis where the reduction has two.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx

from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.epilogues import is_parameter
from eqsat_layout.targets.schedules.stages import (
    Stage,
    layout_of_results,
    layout_of_steps,
    new_schedule,
    stage_of,
    stages_of,
)
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.structural import nodes_of


def fuse_axes(sch: Any) -> Any:
    """``sch`` itself where there are none."""
    for stage in stages_of(sch):
        fused = _fused(sch, stage)
        if fused is not None:
            return fuse_axes(fused)
    return sch


def _fused(sch: Any, stage: Stage) -> Any:
    """Two axes of ``stage`` fused; ``None`` where a reader tells them apart."""
    is_plain = stage.simple and stage.is_plain and stage.axes[: len(stage.spatial)] == stage.spatial
    if not is_plain or not stage.is_along_memory or is_parameter(sch, stage):
        return None
    readers = [stage_of(sch, block) for block in lookups.get_consumers(sch, stage.block)]
    reads = [(load, reader) for reader in readers for load in reader.loads if load.buffer.same_as(stage.write.buffer)]
    for first in range(len(stage.spatial) - 1):
        size = stage.spatial[first + 1].extent
        is_unit = size == 1 and not any(load.uses(stage.spatial[first + 1].var) for load in stage.loads)
        if size is None or not reads:
            continue
        if not is_unit and not all(_is_one(load, reader, first, size) for load, reader in reads):
            continue
        fused = tried(sch, partial(_fuse, stage=stage, first=first, size=size))
        if fused is not None:
            return new_schedule(fused.mod["main"])
    return None


def _fuse(sch: Any, stage: Stage, first: int, size: int) -> None:
    def fused(*indices: Any) -> list[Any]:
        return [*indices[:first], indices[first] * size + indices[first + 1], *indices[first + 2 :]]

    sch.transform_layout(stage.block, ("write", 0), layout_of_results(stage, fused))
    sch.transform_block_layout(stage.block, layout_of_steps(stage, fused))


def _is_one(load: StageAccess, reader: Stage, first: int, size: int) -> bool:
    """The load's indices at two axes are digits of one number."""
    high, low = load.indices[first : first + 2]
    if not _divisions(high) or not _divisions(low):
        return False
    analyzer = analyzer_over(reader.axes)
    return _divisions(analyzer.simplify(high * size + low)) < _divisions(high) + _divisions(low)


def _divisions(index: Any) -> int:
    return len(nodes_of(index, tirx.FloorDiv, tirx.FloorMod))
