"""What register tiles of a reduction are judged by.

In: a reduction, its axes and the machine. Out: a problem that can be remembered, as it holds numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.cache_sets import overflows_sets
from eqsat_layout.targets.cpu.model.operand_loads import MetAgain, OperandLoad
from eqsat_layout.targets.schedules.accesses import StageAccess, StageAxis, depends_on
from eqsat_layout.targets.schedules.stages import Stage
from eqsat_layout.tir.structural import is_one_of

_SPARE = 1  # registers for the operand that is not held

LONG = 32
"""Steps of a product so long that LLVM does not write it out."""


@dataclass(frozen=True)
class TileProblem:
    """What tiles of a reduction are judged by.

    ``width``: elements of a vector register; ``spare``: registers besides accumulators and the operand that is held;
    ``periods``: of blocks of the axis in vectors, which no vector may cross. ``is_depthwise``: of a window, where every
    element of the result is made of others. ``has_panels``: vectors run along the result, so what a tile reads of an
    operand lies in long pieces; else in the rows of a reduction.
    """

    loads: tuple[OperandLoad, ...]
    steps: int
    width: int
    spare: int
    periods: tuple[int, ...]
    has_window: bool
    is_depthwise: bool
    has_panels: bool


def problem_of(stage: Stage, axes: Sequence[StageAxis], machine: CpuMachine) -> TileProblem:
    """For tiles over ``axes``, the last one in vectors."""
    last = axes[-1]
    shared = [a for a in axes if not a.reduce and all(access.uses(a.var) for access in stage.loads)]
    batch = math.prod(a.extent or 64 for a in shared)
    periods = [access.period(last.var) for access in stage.loads]
    loads: list[OperandLoad] = []
    for number, (access, period) in enumerate(zip(stage.loads, periods, strict=True)):
        if any(access.is_same(other) for other in stage.loads[:number]):
            continue  # a square, read once
        steps = math.prod(a.extent or 64 for a in stage.reduced if access.uses(a.var))
        strides = tuple(access.stride(a.var) for a in axes)
        run = period or last.extent or 1
        total = access.buffer_bytes // batch
        is_weights = access is stage.vector_load and stage.is_product and not stage.is_part and not stage.has_window
        read = readings(stage, access) if is_weights else 0
        is_streamed = is_weights and access.buffer_bytes > machine.l2_working_set // 2
        again = _met_again(access, axes, stage.reduced)
        step = _step(stage, access)
        lies_apart = not stage.is_part or is_one_of(access.buffer, stage.given)
        overflows = lies_apart and overflows_sets(access, stage.reduced, machine)
        loads.append(
            OperandLoad(strides, steps, access.element_bytes, run, total, read, is_streamed, again, step, overflows)
        )
    width = machine.lanes(stage.write.element_bytes)
    blocks = tuple(period for period in periods if period)
    is_own = any(all(a.extent == 1 or load.moves(i) for i, a in enumerate(axes)) for load in loads)
    is_depthwise = stage.has_window and is_own
    kind = stage.has_window, is_depthwise, not last.reduce
    return TileProblem(tuple(loads), stage.steps, width, _spare(stage, machine), blocks, *kind)


def _step(stage: Stage, access: StageAccess) -> int:
    """Elements from one step to the next: along the axis that the load in vectors goes on along, as loops do."""
    held = stage.vector_load or access
    moving = [axis for axis in stage.reduced if axis.extent != 1 and access.uses(axis.var)]
    strides = {axis.var: abs(held.stride(axis.var) or 0) for axis in moving}
    along = min(moving, key=lambda axis: strides[axis.var] or math.inf, default=None)
    return abs(access.stride(along.var) or 0) if along is not None else 0


def _met_again(access: StageAccess, axes: Sequence[StageAxis], reduced: Sequence[StageAxis]) -> MetAgain | None:
    """What steps along the last reduced axis read again; ``None`` for what moves along no other one with it."""
    row = next((axis for axis in reversed(reduced) if axis.extent != 1), None)
    if row is None or row.extent is None:
        return None
    moving = [index for index in access.indices if depends_on(index, row.var)]
    sliding = [n for n, axis in enumerate(axes[:-1]) if any(depends_on(index, axis.var) for index in moving)]
    found = [n for n in sliding if access.stride(axes[n].var) is not None]  # not which of tiles that overlap
    if len(moving) != 1 or len(found) != 1:
        return None
    stride, step = (access.stride(axis.var) for axis in (axes[found[0]], row))
    if not stride or not step:
        return None
    places: dict[int, list[int]] = {}
    for number in range(row.extent):
        places.setdefault(number * step % stride, []).append(number * step // stride)
    again = [own for own in places.values() if own[1:]]  # others are read in one step only
    more = sum(max(own) - min(own) for own in again)
    return MetAgain(found[0], len(again), more, len(places) - len(again), row.extent)


def readings(stage: Stage, access: StageAccess) -> int:
    """For how many elements of the result each one of an operand is read."""
    return math.prod(axis.extent or 64 for axis in stage.spatial if not access.uses(axis.var))


def _spare(stage: Stage, machine: CpuMachine) -> int:
    """Registers besides accumulators and the operand that is held; LLVM needs one more to itself, else it spills.

    Not so in long products, whose addresses and operands are the same in every step.
    """
    is_long = stage.steps >= LONG and stage.is_product
    return _SPARE if machine.broadcast_operand or is_long else _SPARE + 1
