"""A schedule with fewer stages: those that cost no work are inlined into their readers.

In: a schedule. Out: another one, whose epilogues run over the axes of their reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.unit_axes import unit_axes_first
from eqsat_layout.targets.cpu.single.unit_reductions import without_unit_reductions
from eqsat_layout.targets.schedules.accesses import StageAccess, depends_on
from eqsat_layout.targets.schedules.epilogues import align_epilogues
from eqsat_layout.targets.schedules.inlining import inline_producers, stays_small
from eqsat_layout.targets.schedules.stages import Stage, new_schedule

_MANY_PARTS = 8  # of a concat, beyond which those that pad or transpose are made first: else no part is in vectors


def simplified_schedule(sch: Any, machine: CpuMachine) -> Any:
    """The same in fewer stages, and epilogues over the axes of their reductions."""
    sch = without_unit_reductions(sch)
    inlined = inline_producers(sch, _may_inline_exactly if machine.is_exact else _may_inline_all)
    return unit_axes_first(align_epilogues(sch if inlined is sch else new_schedule(inlined.mod["main"])))


def _may_inline_all(stage: Stage, consumers: Sequence[Stage]) -> bool:
    """Inlining costs no work."""
    if not all(_may_inline(stage, consumer) for consumer in consumers):
        return False
    return not stage.is_costly or sum(consumer.domain for consumer in consumers) <= stage.domain


def _may_inline_exactly(stage: Stage, consumers: Sequence[Stage]) -> bool:
    """Borders stay in memory: of a maximum with a number that LLVM has seen before, it forgets that NaN comes first."""
    has_border = bool(stage.conditions) and any(consumer.is_reduction for consumer in consumers)
    return not has_border and _may_inline_all(stage, consumers)


def _may_inline(stage: Stage, consumer: Stage) -> bool:
    reads = [load for load in consumer.loads if load.buffer.same_as(stage.write.buffer)]
    if consumer.is_reduction and stage.is_view:
        return True
    if not consumer.simple or not stays_small(stage, consumer):
        return False
    if not consumer.is_reduction:
        return len(consumer.conditions) < _MANY_PARTS or not (stage.conditions or _jumps(stage))
    long = [axis for axis in consumer.spatial if axis.extent != 1]  # axes that a sum keeps have one element
    reused = any(not read.uses(axis.var) for read in reads for axis in long)
    if not reused and long:  # in a group of channels, all of a vector read the same element
        reused = any(read.stride(long[-1].var) == 0 for read in reads)
    lanes = long[-1].var if long else None
    return not reused and not _branches_within_vectors(stage, reads, lanes)


def _branches_within_vectors(stage: Stage, reads: Sequence[StageAccess], lanes: Any) -> bool:
    """Conditions change along the last axis of the stage, or along what its readers, at ``reads``, have in lanes."""
    if stage.branches_on(stage.axes[-1].var):
        return True
    deciding = [axis.var for axis in stage.axes if stage.branches_on(axis.var)]
    decided = [any(depends_on(index, var) for var in deciding) for index in stage.write.indices]
    return lanes is not None and any(
        decides and depends_on(index, lanes)
        for read in reads
        for index, decides in zip(read.indices, decided, strict=True)
    )


def _jumps(stage: Stage) -> bool:
    """Neighbours in the result are none in some operand."""
    return any(load.stride(stage.axes[-1].var) not in (0, 1) for load in stage.loads)
