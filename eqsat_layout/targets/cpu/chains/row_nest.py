"""The schedule of softmax, norms and their kin: all stages of a few rows while these are in L1.

In: a schedule over stages that reduce the last axis of a tensor and use what they found along it (targets room). Out:
the schedule changed in place. May raise where that gains nothing or TVM refuses; the caller works on a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.loops import in_vectors
from eqsat_layout.targets.cpu.single.tile_loops import (
    across_lanes,
    extent_of,
    reduce_lanes,
    reduce_side_by_side,
)
from eqsat_layout.targets.schedules.stages import Axis, Stage, divisors, stage_of

_ROWS = 4  # at once, where vectors divide a row: the additions of one wait less for each other
_FILL = 0.5  # of the working set of L2, for what lies between stages


@dataclass(frozen=True)
class _Part:
    """A block of the nest, and what is done to its loops inside of one."""

    block: Any
    finish: Callable[[Any, Any], None]


def row_axes(stages: Sequence[Stage]) -> int:
    """How many axes of the last stage number the rows: those that every reduction keeps. 0: there are no rows."""
    *earlier, last = stages
    kept = [_extents(stage.spatial) for stage in earlier if stage.is_reduction]
    if not kept or last.is_reduction or not all(stage.simple and stage.is_plain for stage in stages):
        return 0
    counts = range(1, len(last.axes))
    return next((n for n in counts if all(extents == _extents(last.axes[:n]) for extents in kept)), 0)


def schedule_row_nest(sch: Any, stages: Sequence[Stage], count: int, machine: CpuMachine) -> None:
    """Few rows of the last stage's result at a time, in parallel; all that they need is made just before them.

    ``count``: of its axes number the rows.
    """
    *earlier, last = stages
    width = machine.lanes(last.write.element_bytes)
    lanes = {stage.name: _lanes(stage, width) for stage in earlier if stage.is_reduction}
    most = _ROWS if all(lanes.values()) else machine.sums_in_flight
    size, axis = max((max(divisors(a.extent or 1, most)), i) for i, a in enumerate(last.axes[:count]))
    rows = math.prod(axis.extent or 1 for axis in last.axes[:count])
    between = sum(stage.domain * stage.write.element_bytes for stage in earlier if not stage.is_reduction)
    if rows // size < machine.cores or between * size // rows > _FILL * machine.l2_working_set:
        raise Refused("too few rows, or too long ones")
    if not all(lanes.values()) and size * 2 < machine.sums_in_flight:
        raise Refused("no rows side by side")
    parts: list[_Part] = []
    for stage in earlier:
        parts += _parts_of(sch, stage, lanes.get(stage.name), width)
    at = _split(sch, sch.get_loops(last.block)[:count], axis, size, machine)
    _in_vectors(sch, last.block, width)
    domains = [math.prod(axis.extent or 1 for axis in stage_of(sch, part.block).axes) for part in parts]
    for part in reversed(parts):
        sch.compute_at(part.block, at, preserve_unit_loops=True)
        sch.set_scope(part.block, 0, "local")
    for part, domain in zip(parts, domains, strict=True):
        own = sch.get_loops(part.block)[-len(sch.get(part.block).iter_vars) :]
        if math.prod(extent_of(sch, loop) for loop in own) * rows != domain * size:
            raise Refused("rows that need others: these would be made again and again")
        part.finish(sch, part.block)


def _extents(axes: Sequence[Axis]) -> list[int | None]:
    return [axis.extent for axis in axes if axis.extent != 1]


def _lanes(stage: Stage, width: int) -> int:
    """Partial results side by side, a power of two; 0: no vector divides the row."""
    *outer, last = stage.reduced
    if stage.is_product or last.extent is None or (outer and last.extent != width):
        raise Refused("no sum along one axis")
    if any(load.stride(last.var) not in (0, 1) for load in stage.loads):
        raise Refused("the axis does not run along memory")
    lanes = math.gcd(last.extent, width)
    return lanes if 4 * lanes >= width and lanes > 1 else 0


def _parts_of(sch: Any, stage: Stage, lanes: int | None, width: int) -> list[_Part]:
    if lanes is None:
        return [_Part(stage.block, partial(_in_vectors, width=width))]
    partial_results = across_lanes(sch, stage, lanes) if lanes else []
    return [*(_Part(block, reduce_lanes) for block in partial_results), _Part(stage.block, reduce_side_by_side)]


def _split(sch: Any, loops: Sequence[Any], axis: int, size: int, machine: CpuMachine) -> Any:
    """The loop over groups of rows, ``size`` of them along one axis."""
    head, tail = sch.split(loops[axis], [None, size])
    outer = [*loops[:axis], head, *loops[axis + 1 :]]
    sch.reorder(*outer, tail)
    at = sch.fuse(*outer) if outer[1:] else head
    if machine.cores > 1:
        sch.parallel(at)
    return at


def _in_vectors(sch: Any, block: Any, width: int) -> None:
    stage = stage_of(sch, block)
    if not stage.branches_on(stage.axes[-1].var):
        in_vectors(sch, sch.get_loops(block)[-1], width)
