"""Elementwise stages: runs of memory in vectors, the rest in parallel.

In: a schedule and a stage without a reduction. Out: the schedule changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.cut_loops import are_cut, phases_are_cut
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.vectors import lanes_of_run
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.loops import SMALL, in_parallel, run_of
from eqsat_layout.targets.cpu.single.pads import breaks_vectors, fill_and_copy
from eqsat_layout.targets.schedules.accesses import depends_on
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.epilogues import epilogue_of
from eqsat_layout.targets.schedules.rebuild import CutAxis, schedule_over
from eqsat_layout.targets.schedules.stages import Stage, stages_of
from eqsat_layout.tir.blocks import block_of, statements_of, store_of, storing_block
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute

_LONG_RUN = 256  # elements in a loop that LLVM puts into vectors
_OVERLAP = 1.4  # times as many elements as there are, at most, where vectors overlap
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
    if _is_in_vectors(extents, lanes, width):
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


def in_overlapping_vectors(sch: Any, machine: CpuMachine, *, is_dense: bool) -> Any:
    """A new schedule in which runs that no vector divides are in vectors, the last of which begins earlier; or ``sch``.

    LLVM has the loops over short ones written out, and takes vectors across: of elements here and there (planes of 7x7
    took four times as long). ``is_dense``: rows of tensors lie one after another. What follows a reduction on its
    accumulators has their vectors.
    """
    stages = stages_of(sch)
    after = {own.name for stage in stages if stage.is_reduction and (own := epilogue_of(sch, stage)) is not None}
    found = [(stage, _overlapping(stage, machine, is_dense)) for stage in stages if ELEMENTWISE.suits(stage, None)]
    cuts = [(stage, *cut) for stage, cut in found if cut is not None and stage.name not in after]
    return (unless_refused(partial(_with_cuts, sch, cuts)) if cuts else None) or sch


def _with_cuts(sch: Any, cuts: Sequence[tuple[Stage, int, int]]) -> Any:
    """One schedule for all: to make one takes as long as the function is."""
    func = sch.mod["main"]
    statements = statements_of(func)
    done = [unless_refused(partial(_cut_into_tiles_of_run, func, statements, *cut)) for cut in cuts]
    return schedule_over(func, statements, list(func.body.block.alloc_buffers)) if any(done) else None


def _overlapping(stage: Stage, machine: CpuMachine, is_dense: bool) -> tuple[int, int] | None:
    """How many of the last axes are to be cut, and into vectors of how many elements; ``None`` where no such cut pays.

    What is in two vectors is worked out twice: not of long runs, whose rest counts little unless functions are costly.
    """
    run, width = _contiguous_run(stage), machine.lanes(stage.write.element_bytes)
    if not run or stage.conditions or not stage.is_plain or (run > 1 and not is_dense):
        return None
    joined, accesses = stage.axes[len(stage.axes) - run :], (stage.write, *stage.loads)
    extents = [axis.extent or 1 for axis in joined]
    elements = math.prod(extents)
    if _is_in_vectors(extents, lanes_of_run(extents, width), width) or _axis_across(stage, machine) is not None:
        return None
    if any(access.period(axis.var) for access in accesses for axis in joined):  # strides are those of a block then
        return None
    sizes = [size for size in (width, width // 2) if 1 < size < elements]
    passes = {size: -(-elements // size) * machine.passes(size * stage.write.element_bytes) for size in sizes}
    best = min(sizes, key=lambda size: (passes[size], -size), default=0)
    is_long = elements >= _LONG_RUN and not stage.is_costly
    return None if not best or is_long or -(-elements // best) * best > _OVERLAP * elements else (run, best)


def _cut_into_tiles_of_run(func: Any, statements: list[Any], stage: Stage, run: int, size: int) -> bool:
    """Changes the one of ``statements`` that is ``stage``."""
    (number,) = (n for n, one in enumerate(statements) if block_of(one).name_hint == stage.name)
    block = block_of(statements[number])
    *outer, last = block.iter_vars[-run:]
    elements = math.prod(int(axis.dom.extent) for axis in (*outer, last))
    cut = CutAxis.of(elements, -(-elements // size), size, str(last.var.ty.dtype))
    if run > 1:
        used = structural_map(store_of(block).value, (tvm.ir.TensorLoad, lambda load: tirx.const(0, load.ty.dtype)))
        if any(depends_on(used, axis.var) for axis in (*outer, last)):
            raise Refused("a value of the place itself")
        others = [block_of(one) for one in statements if one is not statements[number]]
        own = is_one_of(stage.write.buffer, func.body.block.alloc_buffers)
        if own and not any(_sums_all_of(stage.write.buffer, other) for other in others):
            raise Refused("TVM gives a tensor of the kernel's own no more memory than it sees used, as the first row")
    # rows lie one after another: the first one, run on into the others
    values = {axis.var: tirx.const(0, axis.var.ty.dtype) for axis in outer} | {last.var: cut.element}
    axes = [*block.iter_vars[:-run], cut.number, cut.place]
    body = substitute(store_of(block), values)
    statements[number] = storing_block(axes, block.name_hint, body, None, block.annotations)
    return True


def _sums_all_of(buffer: Any, block: Any) -> bool:
    """A reduction, which stays as it is, over the whole tensor."""
    extents = {axis.var: axis.dom.extent for axis in block.iter_vars}

    def is_all(load: Any) -> bool:
        sizes = [extents.pop(index, None) for index in load.indices]
        return all(map(structural_equal, sizes, buffer.ty.shape))

    loads = [load for load in nodes_of(block.body, tvm.ir.TensorLoad) if load.source.same_as(buffer)]
    return block.init is not None and bool(loads) and is_all(loads[0])


def _is_in_vectors(extents: Sequence[int], lanes: int, width: int) -> bool:
    """Vectors divide the run, and are whole ones, or those of one axis that is short."""
    return lanes > 1 and (lanes >= width or (len(extents) == 1 and extents[-1] < _MANY * width))


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
