"""Schedules of the stages of one kernel: all of them tile by tile or row by row, or one after another.

In: a schedule of a kernel whose places, phases and boxes are settled. Out: that schedule with loops that are tiled,
vectorised and parallel. Decisions look at blocks and accesses only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.chains.cut_choices import fastest_cut
from eqsat_layout.targets.cpu.chains.fused_rows import schedule_fused_rows
from eqsat_layout.targets.cpu.chains.fused_tiles import schedule_fused_tiles
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of, row_axes
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.model.register_tiles import tile_cycles
from eqsat_layout.targets.cpu.single.dense_rows import in_dense_rows
from eqsat_layout.targets.cpu.single.families.elementwise import in_overlapping_vectors
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.joined_tiles import join_tiles
from eqsat_layout.targets.cpu.single.lane_moves import move_lanes
from eqsat_layout.targets.cpu.single.order_axes import order_axes
from eqsat_layout.targets.cpu.single.phases import in_phases
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.cpu.single.split_axes import split_axes
from eqsat_layout.targets.cpu.single.whole_vectors import in_whole_vectors
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.epilogues import epilogue_of
from eqsat_layout.targets.schedules.fuse_rows import fuse_axes
from eqsat_layout.targets.schedules.stages import Stage, stages_of

_LONG = 1 << 16  # iterations of a stage that are worth a note if it is in no fast family
_LONG_ROW = 4  # vectors from which on a rest is worth it
NOT_SCHEDULED = " is not scheduled"


@dataclass(frozen=True)
class StageMeans:
    """What a kernel is scheduled for and with, and why some of it was not: a text for each such stage, or for all.

    ``signed``: of a kernel over words of bytes, the name of the buffer of signed ones. ``has_planes``: rows of tensors
    lie one after another. ``is_dense``: so they do in the kernel that is built too: this is no part of it, and not over
    other rows.
    """

    machine: CpuMachine
    families: Sequence[Family]
    refused: list[str] = field(default_factory=list)
    signed: str | None = None
    has_planes: bool = True
    is_dense: bool = False


def schedule_stages(sch: Any, means: StageMeans) -> Any:
    """``sch`` in vectors, tiles or rows of all stages, the first of these that can be done; else stage by stage.

    ``means.refused`` gets a text for each stage that is left as it was. Raises ``Refused`` where none can be done.
    """
    machine = means.machine
    if any(stage.domain == 0 for stage in stages_of(sch)):  # loops that TVM can't fuse
        raise Refused("a tensor without elements")
    sch = in_phases(simplified_schedule(sch, machine), machine)
    whole = move_lanes(sch, machine, is_dense=means.is_dense) or in_tiles(sch, machine) or in_rows(sch, machine)
    if whole is not None:
        return whole
    sch = _sums_in_whole_vectors(sch, machine) or sch
    sch = split_axes(order_axes(sch, machine), machine)
    dense = in_dense_rows(sch, machine)
    whole = None if dense is sch else in_tiles(dense, machine)
    if whole is not None:
        return whole
    joined = join_tiles(dense, machine)
    overlapping = in_overlapping_vectors(joined, machine, is_dense=means.is_dense)
    made = _stage_by_stage(overlapping, means)
    if means.refused and overlapping is not joined and _has_pairs(joined):
        own = replace(means, refused=[])  # TVM does not see that overlapping vectors make all that is reduced after
        other = _stage_by_stage(joined, own)
        if not own.refused:
            means.refused.clear()
            return other
    return made


def _has_pairs(sch: Any) -> bool:
    """Parts of vectors divide all rows."""
    return all(stage.spatial and (stage.spatial[-1].extent or 1) % 2 == 0 for stage in stages_of(sch))


def _stage_by_stage(sch: Any, means: StageMeans) -> Any:
    done: list[Any] = []
    for stage in stages_of(sch):
        if any(sch.get(stage.block).same_as(sch.get(block)) for block in done):
            continue
        sch, used = _schedule_stage(sch, stage, means)
        done.extend(used)
    return sch


def in_tiles(sch: Any, machine: CpuMachine, nanoseconds: float | None = None, *, has_pads: bool = False) -> Any:
    """All stages tile by tile, where TVM can do it and that is faster than apart (in ``nanoseconds``, if known)."""
    chain, model = chain_of(stages_of(sch), has_pads=has_pads), ChainModel(machine)
    if not chain.is_regular:
        return None
    apart = nanoseconds or model.apart(chain)
    tiles = model.faster(chain, apart)
    cut = fastest_cut(sch, chain, model, machine, apart)
    if cut is not None and (tiles is None or cut.tiles.nanoseconds < tiles.nanoseconds):
        sch, tiles = cut.sch, cut.tiles
    return tiles and tried(sch, lambda s: schedule_fused_tiles(s, tiles.tile, machine))


def in_rows(sch: Any, machine: CpuMachine) -> Any:
    """All stages a few rows at a time; ``None`` where they don't work in rows."""
    sch = fuse_axes(sch)
    stages = stages_of(sch)
    width = machine.lanes(stages[-1].write.element_bytes)
    if _is_sum_of_long_rows(stages, width):
        sch = sch.copy()
        sch.cache_write(stages[0].block, 0, "local")  # a last stage, before which rows are summed
        stages = stages_of(sch)
    count = row_axes(stages)
    if not count:
        return None
    sums = {axis.extent for stage in stages if stage.is_reduction for axis in stage.reduced}
    extent = next(iter(sums)) if len(sums) == 1 else None  # the last stage may have one number of each row only
    whole = None if machine.is_exact else in_whole_vectors(sch, width, extent)  # whose steps may be done twice
    for trial in (whole, sch):
        fused = trial and tried(trial, lambda s: schedule_fused_rows(s, stages_of(s), count, machine))
        if fused is not None:
            return fused
    return None


def _is_sum_of_long_rows(stages: Sequence[Stage], width: int) -> bool:
    """One reduction of rows that are longer than a vector."""
    first = stages[0]
    is_sum = len(stages) == 1 and first.is_along_memory and not first.is_product
    return is_sum and (first.reduced[-1].extent or 0) > width


def _sums_in_whole_vectors(sch: Any, machine: CpuMachine) -> Any:
    """Sums along long rows that no good part of a vector divides, in vectors of which the last one has fewer new
    elements; else ``None``."""
    sums = [stage for stage in stages_of(sch) if stage.is_reduction]
    if machine.is_exact or not sums or any(len(stage.reduced) != 1 for stage in sums):
        return None
    width = machine.lanes(sums[-1].write.element_bytes)
    rows = {stage.reduced[0].extent or 0 for stage in sums}
    lies_along = all(load.stride(stage.reduced[0].var) in (0, 1) for stage in sums for load in stage.loads)
    if len(rows) != 1 or not lies_along or min(rows) < _LONG_ROW * width or math.gcd(width, *rows) >= width // 2:
        return None
    if any(tile_cycles(stage, machine) is not None for stage in sums):
        return None  # vectors along the result
    return in_whole_vectors(sch, width, min(rows))


def _schedule_stage(sch: Any, stage: Stage, means: StageMeans) -> tuple[Any, list[Any]]:
    """The schedule after the first family that applies, and the other blocks that it took along."""
    epilogue = epilogue_of(sch, stage)
    reasons: list[str] = []
    for family in means.families:
        if not family.suits(stage, epilogue):
            continue
        taken = epilogue if family.takes_epilogue else None
        trial = tried(sch, family.change(stage, taken, means.machine), reasons, family.name)
        if trial is not None:
            if not family.has_vectors and stage.domain >= _LONG:
                why = f" ({', '.join(reasons)})" if reasons else ""
                means.refused.append(f": stage {stage.name} is done without vectors, {family.name}{why}")
            return trial, [] if taken is None else [taken.block]
    means.refused.append(f": stage {stage.name}{NOT_SCHEDULED}: {', '.join(reasons)}")
    return sch, []
