"""Elementwise stages that run on the accumulators of a reduction.

In: a schedule and a reduction. Out: its epilogue, if it has one, and how that reads what the reduction makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.schedules import lookups
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis, as_int
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.stages import ROOT, Stage, cached_write, new_schedule, stage_of, stages_of
from eqsat_layout.tir.structural import is_one_of, substitute
from eqsat_layout.tir.whole_reads import takes_all

_FEW_STEPS = 16  # of a product, so few that LLVM writes them out and mixes them with what follows


def epilogue_of(sch: Any, stage: Stage) -> Stage | None:
    """The one elementwise consumer that can run on the accumulators of ``stage``."""
    consumers = lookups.get_consumers(sch, stage.block)
    if not stage.is_reduction or len(consumers) != 1 or is_parameter(sch, stage):
        return None
    consumer = stage_of(sch, consumers[0])
    if not consumer.simple or consumer.is_reduction or not (consumer.is_plain or is_in_place(stage, consumer)):
        return None
    if consumer.is_costly and stage.is_product and stage.steps <= _FEW_STEPS:
        return None
    return consumer if consumer.domain == math.prod(a.extent or 64 for a in stage.spatial) else None


def is_in_place(stage: Stage, epilogue: Stage) -> bool:
    """The epilogue reads the elements of ``stage`` at the indices at which it writes."""
    return all(
        len(load.indices) == len(epilogue.axes)
        and all(_is_axis(index, axis) for index, axis in zip(load.indices, epilogue.axes, strict=True))
        for load in _reads(epilogue, stage)
    ) and [a.extent for a in epilogue.axes] == [a.extent for a in stage.spatial]


def _reads(epilogue: Stage, stage: Stage) -> list[StageAccess]:
    """What the epilogue reads of the stage's result."""
    return [load for load in epilogue.loads if load.buffer.same_as(stage.write.buffer)]


def _is_axis(index: Any, axis: StageAxis) -> bool:
    return bool(index.same_as(axis.var)) or (axis.extent == 1 and isinstance(index, tirx.IntImm))


def is_relaid(stage: Stage, epilogue: Stage) -> bool:
    """The epilogue reads every element of ``stage`` for one element of its own, always at the same indices."""
    own = _reads(epilogue, stage)
    first = list(own[0].indices)
    if any(not tvm_ffi.structural_equal(list(load.indices), first) for load in own):
        return False
    axes = {axis.var: axis.extent or 64 for axis in epilogue.axes}
    return takes_all(first, axes, [extent or 64 for extent in own[0].shape])


def with_epilogue(sch: Any, number: int, change: Callable[[Any], None]) -> tuple[Any, Stage] | None:
    """A new schedule after ``change``, which lays out the results of reduction ``number`` anew, and that reduction.

    A reduction without an epilogue gets a copy as one first. ``None`` where the change is refused, or the epilogue
    would not run on the accumulators any more.
    """
    stage = stages_of(sch)[number]
    epilogue = epilogue_of(sch, stage)
    if epilogue is not None and not is_in_place(stage, epilogue):
        return None

    def changed(trial: Any) -> None:
        if epilogue is None:
            cached_write(trial, stage.block, "global")
        change(trial)

    trial = tried(sch, changed)
    if trial is None:
        return None
    trial = align_epilogues(new_schedule(trial.mod["main"]))
    own = stages_of(trial)[number]
    out = epilogue_of(trial, own)
    return (trial, own) if out is not None and is_in_place(own, out) else None


def align_epilogues(sch: Any) -> Any:
    """Epilogues that see rows as several axes, or axes of one element, take those of their reductions instead."""
    for number, stage in enumerate(stages_of(sch)):
        aligned = _aligned(sch, stage, number)
        if aligned is not None:
            return align_epilogues(aligned)
    return sch


def _aligned(sch: Any, stage: Stage, number: int) -> Any:
    epilogue = epilogue_of(sch, stage)
    if epilogue is None or is_in_place(stage, epilogue) or not is_relaid(stage, epilogue):
        return None
    at = _reads(epilogue, stage)[0].indices
    lane = next((axis for axis in reversed(epilogue.axes) if axis.extent != 1), epilogue.axes[-1])
    if not at or not at[-1].same_as(lane.var):  # its vectors would be torn apart
        return None
    if not all(map(partial(_is_zero_at_first, stage=epilogue), at)):  # TVM maps no axis backwards
        return None
    axes = tirx.IndexMap([axis.var for axis in epilogue.axes], list(at), None)
    own = _own_layout(sch, epilogue, at)

    def change(trial: Any) -> None:
        trial.transform_block_layout(epilogue.block, axes)
        if own is not None:
            trial.transform_layout(epilogue.block, ("write", 0), own)

    changed = tried(sch, change)
    if changed is None:
        return None
    changed = new_schedule(changed.mod["main"])
    stage = stages_of(changed)[number]
    aligned = epilogue_of(changed, stage)
    return changed if aligned is not None and is_in_place(stage, aligned) else None


def _own_layout(sch: Any, epilogue: Stage, at: Sequence[Any]) -> Any:
    """The layout of the epilogue's result as it reads what it reads (``at``), so that it stores at its axes.

    Where that leaves out axes of one element, or where what reads the rows of the result does so in any layout.
    """
    if is_parameter(sch, epilogue) or not epilogue.is_plain:
        return None
    units = iter([axis.var for axis in epilogue.axes if axis.extent == 1])
    places = [next(units, index) if isinstance(index, tirx.IntImm) else index for index in at]
    are_axes = all(any(place.same_as(axis.var) for axis in epilogue.axes) for place in places)
    readers = [stage_of(sch, block) for block in lookups.get_consumers(sch, epilogue.block)]
    if not (are_axes and len(at) < len(epilogue.axes)) and not any(reader.is_along_memory for reader in readers):
        return None
    return tirx.IndexMap([axis.var for axis in epilogue.axes], places, None)


def _is_zero_at_first(index: Any, stage: Stage) -> bool:
    """The index is 0 where all axes are: not so for an axis that is run backwards."""
    origin = {axis.var: tirx.const(0, axis.var.ty.dtype) for axis in stage.axes}
    return as_int(tvm.sym.Analyzer().simplify(substitute(index, origin))) == 0


def is_parameter(sch: Any, stage: Stage) -> bool:
    """The stage writes a buffer of the function's signature."""
    buffers = lookups.get(sch, lookups.get_sblock(sch, ROOT)).alloc_buffers
    return not is_one_of(stage.write.buffer, buffers)
