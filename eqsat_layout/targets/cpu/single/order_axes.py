"""Reductions along memory take their steps in the order of memory.

In: a schedule. Out: a new one in which such a reduction runs fastest along the axis that its operands lie along.
Channels in groups, reduced over together with all places (group norm, channels last), have them before the places.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import lane_tile, tile_cycles
from eqsat_layout.targets.schedules.attempts import tried
from eqsat_layout.targets.schedules.stages import Stage, layout_of_steps, new_schedule, stages_of


def order_axes(sch: Any, machine: CpuMachine) -> Any:
    """``sch`` itself where every reduction has its axes in that order, or results for the lanes of a vector."""
    if machine.is_exact:  # each sum in its own order
        return sch
    for number in range(len(stages_of(sch))):
        sch = _ordered(sch, number, machine) or sch
    return sch


def _ordered(sch: Any, number: int, machine: CpuMachine) -> Any:
    """A new schedule with another order in stage ``number``; ``None`` where that is no better."""
    stage = stages_of(sch)[number]
    place = _along_memory(stage, machine)
    trial = None if place is None else tried(sch, lambda trial: _move_last(trial, stage, place))
    if trial is None or lane_tile(stages_of(trial)[number], machine) is None:
        return None
    return new_schedule(trial.mod["main"])


def _along_memory(stage: Stage, machine: CpuMachine) -> int | None:
    """The axis to be last, by its place among all; ``None`` where another order is no better."""
    if not (stage.simple and stage.is_plain and stage.is_reduction) or tile_cycles(stage, machine) is not None:
        return None
    fitting = [place for place, axis in enumerate(stage.axes) if axis.reduce and _runs_along(stage, axis.var)]
    last = stage.axes.index(stage.reduced[-1])
    return fitting[-1] if fitting and last not in fitting else None


def _runs_along(stage: Stage, var: Any) -> bool:
    """From one element to the next in memory in some operand, and nowhere else in the others."""
    strides = {load.stride(var) for load in stage.loads}
    return 1 in strides and strides <= {0, 1}


def _move_last(sch: Any, stage: Stage, place: int) -> None:
    """Reduced axes of one element go: TVM would make them axes of the result."""
    kept = [i for i, axis in enumerate(stage.axes) if i != place and not (axis.reduce and axis.extent == 1)]

    def moved(*indices: Any) -> list[Any]:
        return [*(indices[i] for i in kept), indices[place]]

    sch.transform_block_layout(stage.block, layout_of_steps(stage, moved))
