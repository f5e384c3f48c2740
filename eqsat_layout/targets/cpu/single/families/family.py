"""What a family of schedules is.

In: a stage and its epilogue, if it has one. Out: whether the family is for such stages, and its schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.schedules.stages import Stage


@dataclass(frozen=True)
class Family:
    """A way to schedule one stage.

    ``schedule(sch, stage, epilogue, machine)`` changes ``sch`` in place; :class:`~eqsat_layout.errors.Refused` or TVM's
    ``ScheduleError`` where it does not apply. ``suits(stage, epilogue)``: it is worth trying. ``takes_epilogue``: the
    stage's epilogue is scheduled too, else it is a stage of its own. ``has_vectors``: it is fast.
    """

    name: str
    schedule: Callable[[Any, Stage, Stage | None, CpuMachine], None]
    suits: Callable[[Stage, Stage | None], bool]
    takes_epilogue: bool = False
    has_vectors: bool = True

    def change(self, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> Callable[[Any], None]:
        """The schedule of this stage, as a change of a schedule."""
        return lambda sch: self.schedule(sch, stage, epilogue, machine)
