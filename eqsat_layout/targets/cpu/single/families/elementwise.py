"""Elementwise stages: runs of memory in vectors, the rest in parallel.

In: a schedule and a stage without a reduction. Out: the schedule changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eqsat_layout.targets.cpu.cut_loops import are_cut, phases_are_cut
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.vectors import lanes_of_run
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.loops import SMALL, in_parallel, run_of
from eqsat_layout.targets.cpu.single.pads import breaks_vectors, fill_and_copy
from eqsat_layout.targets.schedules.stages import Stage

_LONG_RUN = 256  # elements in a loop that LLVM puts into vectors
_MANY = 4  # vectors, from which on LLVM is faster with a rest than we with vectors that divide them


def _schedule(sch: Any, stage: Stage, epilogue: Stage | None, machine: CpuMachine) -> None:
    """Outer loops parallel, the innermost contiguous run vectorised.

    By LLVM, where vectors don't divide it or conditions are met along it, at which the build cuts the loop.
    """
    loops = list(sch.get_loops(stage.block))
    run = _contiguous_run(stage)
    extents = [a.extent or 1 for a in stage.axes[len(stage.axes) - run :]]
    width = machine.lanes(stage.write.element_bytes)
    is_cut = False
    if run and stage.conditions and breaks_vectors(stage, width):
        if phases_are_cut(stage):
            sch.unroll(loops[-2])
            in_parallel(sch, loops[:-2], machine, stage)
            return
        last, block = stage.axes[-1], stage.branch_block(stage.axes[-1].var)
        is_short = block < 2 * width <= 4 * lanes_of_run([block], width)  # LLVM does such parts one by one
        is_cut = block % width != 0 and not is_short and are_cut(stage.conditions, last.var, last.extent or 0)
        if not is_cut and _decompose_pad(sch, stage, machine):
            return
        extents[-1] = math.gcd(extents[-1], block)  # a concat: vectors lie in one part
    lanes = _lanes_in_blocks(stage, lanes_of_run(extents, width), width) if run and not is_cut else 1
    if lanes > 1 and (lanes >= width or (run == 1 and extents[-1] < _MANY * width)):
        joined = _joined_axes(extents, lanes)
        fused = sch.fuse(*loops[-joined:]) if joined > 1 else loops[-1]
        outer, inner = sch.split(fused, [None, lanes])
        sch.vectorize(inner)
        loops = [*loops[:-joined], outer, inner]
    elif (across := _axis_across(stage, machine)) is not None:
        loops = _in_lines(sch, loops, across, machine.line_bytes // stage.write.element_bytes)
    elif run > 1:
        taken = next((k for k in range(1, run) if math.prod(extents[-k:]) >= _LONG_RUN), run)
        loops = [*loops[:-taken], sch.fuse(*loops[-taken:]) if taken > 1 else loops[-1]]
    if len(loops) == 1 and stage.domain >= SMALL and not is_cut:
        loops = list(sch.split(loops[0], [4 * machine.cores, None]))
    in_parallel(sch, loops[:-1], machine, stage)


ELEMENTWISE = Family("elementwise", _schedule, lambda stage, _: stage.simple and not stage.is_reduction)


def _joined_axes(extents: Sequence[int], lanes: int) -> int:
    """How many of the last axes of a run are one, in vectors of ``lanes``.

    All of them; but where vectors divide several of them and not the last, these only: TVM does not see then that an
    address is the number of the element, and divides for each lane by the extents.
    """
    fewest = next(n for n in range(1, len(extents) + 1) if math.prod(extents[-n:]) % lanes == 0)
    return fewest if fewest > 1 else len(extents)


def _contiguous_run(stage: Stage) -> int:
    """How many of the last axes are one contiguous run in the store and in every load (or broadcast there)."""
    if stage.write.stride(stage.axes[-1].var) != 1:
        return 0
    return run_of(stage.axes, [stage.write, *stage.loads], joins=not stage.conditions)


def _axis_across(stage: Stage, machine: CpuMachine) -> int | None:
    """The axis along which a load lies in memory, if that is not the last one, of which there is more than a line."""
    last, line = stage.axes[-1], machine.line_bytes
    if stage.write.stride(last.var) != 1 or stage.conditions or (last.extent or 0) * stage.write.element_bytes <= line:
        return None
    crossed = [load for load in stage.loads if load.stride(last.var) not in (0, 1)]
    found = (n for load in crossed for n, axis in enumerate(stage.axes[:-1]) if load.stride(axis.var) == 1)
    return next(found, None)


def _in_lines(sch: Any, loops: Sequence[Any], across: int, count: int) -> list[Any]:
    """``count`` elements of the last axis at a time for all of the axis ``across``: lines of memory are used whole."""
    *outer, last = loops
    outer.append(outer.pop(across))
    tile, inner = sch.split(last, [None, count])
    outer.insert(-1, tile)
    sch.reorder(*outer, inner)
    return [*outer, inner]


def _lanes_in_blocks(stage: Stage, lanes: int, width: int) -> int:
    """No more lanes than a block that an operand has along the last axis, if that fills a register.

    A vector over several blocks has its elements from several places (the means of groups of channels): they would be
    gathered one by one.
    """
    last = stage.axes[-1].var
    inside = math.gcd(lanes, *(access.period(last) for access in (stage.write, *stage.loads)))
    return inside if inside % width == 0 else lanes


def _decompose_pad(sch: Any, stage: Stage, machine: CpuMachine) -> bool:
    """A pad along the vector axis as a fill and a copy, both vectorised; False if the stage is no such pad."""
    parts = fill_and_copy(sch, stage, 0, machine)
    for outer in parts:
        in_parallel(sch, outer, machine, stage)
    return bool(parts)
