"""Stages of any kind: outer loops in parallel.

In: a schedule and a stage. Out: the schedule changed in place.
"""

from __future__ import annotations

from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.loops import in_parallel, leading_axes
from eqsat_layout.targets.schedules.stages import Stage


def _schedule(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Outer spatial loops fused and parallel; nothing else."""
    loops = sch.get_loops(stage.block)
    if stage.simple:
        loops = [loop for loop, axis in zip(loops, stage.axes, strict=True) if not axis.reduce][: leading_axes(stage)]
    elif len(loops) == len(stage.axes):
        loops = loops[: min(1, leading_axes(stage))]
    else:
        loops = loops[:1]
    if loops:
        in_parallel(sch, loops, machine, stage)


FALLBACK = Family("outer loops in parallel", _schedule, lambda stage, _: True, has_vectors=False)
