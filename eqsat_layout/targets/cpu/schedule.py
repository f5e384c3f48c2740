"""Schedules for every PrimFunc of a module.

In: unscheduled TE-style PrimFuncs. Out: the same functions, inlined, tiled, vectorised and parallel. Decisions look at
blocks and accesses only; what can't be scheduled comes back as it was, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.notes import Notes
from eqsat_layout.targets.cpu.amx.selection import split_product
from eqsat_layout.targets.cpu.chains.cut_choices import fastest_cut
from eqsat_layout.targets.cpu.chains.fused_rows import schedule_fused_rows
from eqsat_layout.targets.cpu.chains.fused_tiles import schedule_fused_tiles
from eqsat_layout.targets.cpu.chains.move_pads import may_move_pads, pads_first
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of, row_axes
from eqsat_layout.targets.cpu.model.chain_model import ChainModel
from eqsat_layout.targets.cpu.model.register_tiles import tile_cycles
from eqsat_layout.targets.cpu.places.box import boxes_of, in_boxes, out_of_boxes
from eqsat_layout.targets.cpu.places.byte_words import in_words
from eqsat_layout.targets.cpu.places.planes import planes_as_rows
from eqsat_layout.targets.cpu.places.reshaped_operands import reshaped_operands
from eqsat_layout.targets.cpu.places.whole_rows import whole_rows
from eqsat_layout.targets.cpu.single.dense_rows import in_dense_rows
from eqsat_layout.targets.cpu.single.families.elementwise import in_overlapping_vectors
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.registry import FAMILIES
from eqsat_layout.targets.cpu.single.joined_tiles import join_tiles
from eqsat_layout.targets.cpu.single.lane_moves import move_lanes
from eqsat_layout.targets.cpu.single.matrix_sums import write_out_combinations
from eqsat_layout.targets.cpu.single.neighbouring_iterations import neighbours_in_lanes
from eqsat_layout.targets.cpu.single.order_axes import order_axes
from eqsat_layout.targets.cpu.single.phases import in_phases
from eqsat_layout.targets.cpu.single.prefetch import prefetch_panels
from eqsat_layout.targets.cpu.single.simplify import simplified
from eqsat_layout.targets.cpu.single.skipped_padding import skip_padding
from eqsat_layout.targets.cpu.single.skipped_steps import skip_zero_steps
from eqsat_layout.targets.cpu.single.split_axes import split_axes
from eqsat_layout.targets.cpu.single.whole_periods import in_whole_periods
from eqsat_layout.targets.cpu.single.whole_vectors import in_whole_vectors
from eqsat_layout.targets.cpu.symbolic.kernel import has_symbols, kernel_in_parts
from eqsat_layout.targets.schedules.attempts import isolated, tried, unless_refused
from eqsat_layout.targets.schedules.blocks_in_loops import has_blocks_inside, iterations, schedule_inside
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_in_place
from eqsat_layout.targets.schedules.fuse_rows import fuse_axes
from eqsat_layout.targets.schedules.independent_results import independent_results
from eqsat_layout.targets.schedules.index_of_extreme import split_extremes
from eqsat_layout.targets.schedules.infinities import begins_with_infinity, infinities_exchanged
from eqsat_layout.targets.schedules.math_functions import expand_functions
from eqsat_layout.targets.schedules.narrow_indices import narrow_indices
from eqsat_layout.targets.schedules.quantised_values import quantise_in_few_steps
from eqsat_layout.targets.schedules.row_divisors import divide_rows_once
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stages_of
from eqsat_layout.tir.blocks import changes_what_it_reads
from eqsat_layout.tir.intrinsics import calls_library

_LONG = 1 << 16  # iterations of a stage that are worth a note if it is in no fast family
_SHORT = 1 << 20  # iterations of stages in a loop, below which it costs more to share them than that saves
_LONG_ROW = 4  # vectors from which on a rest is worth it
_SCHEDULED, _OF_HOST = "tirx.is_scheduled", "tirx.is_host_func"
_NOT_SCHEDULED = " is not scheduled"


@dataclass(frozen=True)
class _Means:
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


def schedule_module(
    mod: tvm.IRModule, machine: CpuMachine, notes: Notes | None = None, *, families: Sequence[Family] = FAMILIES
) -> tvm.IRModule:
    """``mod`` with every PrimFunc scheduled that was not. The input is not changed.

    ``notes`` get a text for each kernel that stays as it was, in all or in part. A fault in one is a note too (strict:
    raised), and no other kernel notices. ``families``: of single stages, the first that applies is taken.
    """
    notes = Notes() if notes is None else notes
    functions: dict[Any, Any] = {}
    for name, function in mod.functions.items():
        if isinstance(function, tirx.PrimFunc) and not _is_scheduled(function):
            means, kernel = _Means(machine, families, is_dense=True), str(name.name_hint)
            scheduled = isolated(partial(_scheduled_func, function, means), f"kernel {kernel}{_NOT_SCHEDULED}", notes)
            function = scheduled or function
            for reason in means.refused:
                notes.add(f"kernel {kernel}{reason}")
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def schedule_primfunc(func: Any, machine: CpuMachine, *, families: Sequence[Family] = FAMILIES) -> Any:
    """``func`` scheduled for ``machine``; as it was where that is refused. Faults are raised."""
    return _scheduled_func(func, _Means(machine, families, is_dense=True))


def _scheduled_func(func: Any, means: _Means) -> Any:
    words = unless_refused(lambda: in_words(func)) if means.machine.byte_products else None
    if words is not None:
        own = replace(means, signed=words.signed)
        done = unless_refused(lambda: words.restored(_scheduled_bytes(words.func, own)))
        if done is not None:
            return done
    return _scheduled_bytes(func, means)


def _scheduled_bytes(func: Any, means: _Means) -> Any:
    boxes = boxes_of(func)
    if boxes:  # rows lie as they always do while a schedule is chosen
        own = out_of_boxes(func)
        if any(number < len(func.params) - 1 for number in boxes):
            means = replace(means, signed=None)  # tiles of bytes are loaded by their places in an operand
        means = replace(means, is_dense=False, has_planes=all(box.has_whole_rows for box in boxes.values()))
        return in_boxes(_scheduled_own(own, means), boxes)
    return _scheduled_own(func, means)


def _scheduled_own(func: Any, means: _Means) -> Any:
    """``func``, in no boxes."""
    if calls_library(func):  # what its blocks read and write is not all there is
        means.refused[:] = [f"{_NOT_SCHEDULED}: it calls a library"]
        return func
    if has_blocks_inside(func):
        return _scheduled(schedule_inside(func, partial(_part, means), means.refused))
    if changes_what_it_reads(func):  # the last vector of a row does some of the one before again
        means.refused[:] = [f"{_NOT_SCHEDULED}: it changes what it reads"]
        return func
    apart = unless_refused(lambda: independent_results(func))
    if apart is not None:
        return _named(func, _scheduled(apart.joined([_scheduled_own(part, means) for part in apart.parts])))
    whole, over_others = unless_refused(lambda: whole_rows(func, means.machine)), replace(means, is_dense=False)
    if whole is not None:
        done = unless_refused(lambda: whole.restored(_scheduled_own(whole.func, over_others)))
        if done is not None and _is_scheduled(done):
            return _named(func, done)
    periods = unless_refused(lambda: in_whole_periods(func, partial(_scheduled_whole, means=over_others)))
    if periods is not None:
        return _named(func, _scheduled(periods))
    if has_symbols(func):
        return _in_parts(func, means) or _scheduled_whole(func, over_others)
    planes = unless_refused(lambda: planes_as_rows(func, means.machine)) if means.has_planes else None
    if planes is not None:
        done = _scheduled_whole(planes.func, means)
        if _is_scheduled(done):
            return _named(func, planes.restored(done))
    return _scheduled_whole(func, means)


def _part(means: _Means, func: Any, again: bool) -> Any:
    """Stages of a kernel, which are done ``again`` and again, scheduled."""
    machine = replace(means.machine, cores=1) if again and iterations(func) < _SHORT else means.machine
    own = _Means(machine, means.families)
    done = _scheduled_own(func, own)
    means.refused.extend(own.refused)
    return done


def _in_parts(func: Any, means: _Means) -> Any:
    """``func``, whose sizes are symbolic, in parts of known sizes; ``None`` where it has no such parts."""

    def schedule(part: Any, machine: CpuMachine) -> Any:
        return _scheduled_whole(part, _Means(machine, means.families))

    kernel = unless_refused(lambda: kernel_in_parts(func, means.machine, schedule))
    return kernel and _named(func, _scheduled(kernel))


def _scheduled_whole(whole: Any, means: _Means) -> Any:
    func = narrow_indices(whole if means.machine.is_exact else _named(whole, split_extremes(whole)))
    reasons: list[str] = []
    kernel = _on_matrix_unit(func, means)
    done = kernel or _finished(func, lambda sch: _schedule(sch, means), means.machine, reasons)
    if done is None:
        done = unless_refused(lambda: _scheduled(neighbours_in_lanes(func, means.machine)))
    if done is None:
        means.refused[:] = [f"{_NOT_SCHEDULED}: {reason}" for reason in reasons]
    return done or whole


def _on_matrix_unit(func: Any, means: _Means) -> Any:
    """``func`` as a kernel for the matrix unit; ``None`` where there is none, or none that is faster."""
    split = split_product(func, means.machine, means.signed)
    kernel = split and unless_refused(split.kernel)
    if kernel is not None and not means.machine.is_exact:
        kernel = _with_short_functions(divide_rows_once(kernel))
    return kernel and _named(func, _scheduled(kernel))


def _with_short_functions(func: Any) -> Any:
    """``func`` with functions as arithmetic, which is not exact in NaN and signs of zero."""
    return expand_functions(quantise_in_few_steps(func))


def joined_primfunc(func: Any, machine: CpuMachine, *, passes: int, nanoseconds: float) -> Any:
    """``func`` as one loop over tiles or rows of all stages; ``None`` where that takes longer than ``nanoseconds``.

    With no more than ``passes`` over the data, one whose last stage runs on accumulators is as good.
    """
    operands = unless_refused(lambda: reshaped_operands(func))
    done = _joined(operands.func, machine, passes, nanoseconds) if operands else None
    if operands is None or done is None:
        return _joined(func, machine, passes, nanoseconds)
    return _named(func, operands.restored(done))


def _joined(func: Any, machine: CpuMachine, passes: int, nanoseconds: float) -> Any:
    means = _Means(machine, FAMILIES)

    def joined(sch: Any) -> Any:
        plain = simplified(sch, machine)
        chain = chain_of(stages_of(plain))
        moved = pads_first(sch) if may_move_pads(chain) else None
        fused = moved and _in_tiles(moved, machine, nanoseconds, has_pads=True)
        if fused is not None:
            return fused
        sch, is_short = plain, chain.passes <= passes and _has_epilogue(plain)
        fused = _in_tiles(sch, machine, nanoseconds) or _in_rows(sch, machine)
        return fused or (_schedule(sch, means) if is_short else None)

    return _finished(func, joined, machine)


def _has_epilogue(sch: Any) -> bool:
    """The last stage runs on the accumulators of the one before, whatever their tile."""
    stages = stages_of(sch)
    epilogue = epilogue_of(sch, stages[-2]) if stages[1:] else None
    return epilogue is not None and is_in_place(stages[-2], epilogue)


def _finished(func: Any, schedule: Callable[[Any], Any], machine: CpuMachine, refused: list[str] | None = None) -> Any:
    """``func`` under its own name with what ``schedule`` makes of it; ``None`` where that is nothing, or refused."""
    exchanged = infinities_exchanged if begins_with_infinity(func) else lambda same: same
    sch = unless_refused(lambda: schedule(new_schedule(exchanged(func))), refused)
    if sch is None:
        return None
    made = exchanged(sch.mod["main"])
    if not machine.is_exact:  # else functions are TVM's, and products with zeros are computed: they may be NaN
        made = skip_padding(made)
        made = skip_zero_steps(write_out_combinations(_with_short_functions(divide_rows_once(made))))
    return _named(func, _scheduled(prefetch_panels(made, machine)))


def _named(func: Any, done: Any) -> Any:
    """``done`` under the name of ``func``."""
    name = func.attrs.get("global_symbol") if func.attrs else None
    return done.with_attr("global_symbol", name) if name else done.without_attr("global_symbol")


def _scheduled(func: Any) -> Any:
    """``func`` marked as one that is not to be scheduled again."""
    return func.with_attr(_SCHEDULED, True)


def _is_scheduled(func: Any) -> bool:
    """There is nothing to schedule: done, or what works out sizes between kernels."""
    return bool(func.attrs and (func.attrs.get(_SCHEDULED, False) or func.attrs.get(_OF_HOST, False)))


def _schedule(sch: Any, means: _Means) -> Any:
    machine = means.machine
    if any(stage.domain == 0 for stage in stages_of(sch)):  # loops that TVM can't fuse
        raise Refused("a tensor without elements")
    sch = in_phases(simplified(sch, machine), machine)
    whole = move_lanes(sch, machine, is_dense=means.is_dense) or _in_tiles(sch, machine) or _in_rows(sch, machine)
    if whole is not None:
        return whole
    sch = _sums_in_whole_vectors(sch, machine) or sch
    sch = split_axes(order_axes(sch, machine), machine)
    dense = in_dense_rows(sch, machine)
    whole = None if dense is sch else _in_tiles(dense, machine)
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


def _stage_by_stage(sch: Any, means: _Means) -> Any:
    done: list[Any] = []
    for stage in stages_of(sch):
        if any(sch.get(stage.block).same_as(sch.get(block)) for block in done):
            continue
        sch, used = _schedule_stage(sch, stage, means)
        done.extend(used)
    return sch


def _in_tiles(sch: Any, machine: CpuMachine, nanoseconds: float | None = None, *, has_pads: bool = False) -> Any:
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


def _in_rows(sch: Any, machine: CpuMachine) -> Any:
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


def _schedule_stage(sch: Any, stage: Stage, means: _Means) -> tuple[Any, list[Any]]:
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
    means.refused.append(f": stage {stage.name}{_NOT_SCHEDULED}: {', '.join(reasons)}")
    return sch, []
