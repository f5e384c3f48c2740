"""Reductions whose results end in axes of one element have these first.

In: a schedule. Out: a new one in which the last axis of such a reduction has elements for a vector: a convolution of
one pixel (squeeze and excite, channels first) is a product of matrices then; its epilogue puts the results where they
belong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat_layout.targets.schedules.epilogues import with_epilogue
from eqsat_layout.targets.schedules.stages import Stage, layout_of_results, layout_of_steps, stages_of


def unit_axes_first(sch: Any) -> Any:
    """``sch`` itself where no reduction has its last axis moved."""
    stages = stages_of(sch)
    for number in range(len(stages)):
        if _gains_lanes(stages[number]) and (moved := _moved(sch, number)) is not None:
            sch, stages = moved, stages_of(moved)
    return sch


def _gains_lanes(stage: Stage) -> bool:
    """Some operand of a product runs along the last axis that has more than one element."""
    if not (stage.simple and stage.is_plain and stage.is_reduction and stage.spatial and len(stage.loads) > 1):
        return False
    long = [axis for axis in stage.spatial if axis.extent != 1]
    factors = [load for load in stage.loads if any(load.uses(axis.var) for axis in stage.reduced)]  # no mean, say
    return stage.spatial[-1].extent == 1 and bool(long) and any(load.stride(long[-1].var) == 1 for load in factors)


def _moved(sch: Any, number: int) -> Any:
    """A new schedule; ``None`` where its epilogue would not follow."""
    stage = stages_of(sch)[number]
    extents = [axis.extent for axis in stage.spatial]
    order = sorted(range(len(extents)), key=lambda place: extents[place] != 1)
    # reduced axes of one element go: TVM would make them axes of the result
    reduced = [place for place, axis in enumerate(stage.axes) if axis.reduce and axis.extent != 1]

    def change(trial: Any) -> None:
        trial.transform_layout(stage.block, ("write", 0), layout_of_results(stage, _in_order(order)))
        trial.transform_block_layout(stage.block, layout_of_steps(stage, _in_order([*order, *reduced])))

    found = with_epilogue(sch, number, change)
    if found is None:
        return None
    trial, moved = found
    return trial if moved.is_plain else None


def _in_order(places: list[int]) -> Callable[..., list[Any]]:
    return lambda *indices: [indices[place] for place in places]
