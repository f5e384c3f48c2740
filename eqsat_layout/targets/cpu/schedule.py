"""Schedules for every PrimFunc of a module.

In: unscheduled TE-style PrimFuncs. Out: the same functions, inlined, tiled, vectorised and parallel. Decisions look at
blocks and accesses only; what can't be scheduled comes back as it was, and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.notes import Notes
from eqsat_layout.targets.cpu.amx.selection import split_product
from eqsat_layout.targets.cpu.chains.move_pads import may_move_pads, pads_first
from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.chain import chain_of
from eqsat_layout.targets.cpu.places.box import boxes_of, in_boxes, out_of_boxes
from eqsat_layout.targets.cpu.places.byte_words import in_words
from eqsat_layout.targets.cpu.places.planes import planes_as_rows
from eqsat_layout.targets.cpu.places.reshaped_operands import reshaped_operands
from eqsat_layout.targets.cpu.places.whole_rows import whole_rows
from eqsat_layout.targets.cpu.single.families.family import Family
from eqsat_layout.targets.cpu.single.families.registry import FAMILIES
from eqsat_layout.targets.cpu.single.matrix_sums import write_out_combinations
from eqsat_layout.targets.cpu.single.neighbouring_iterations import neighbours_in_lanes
from eqsat_layout.targets.cpu.single.prefetch import prefetch_panels
from eqsat_layout.targets.cpu.single.simplify import simplified_schedule
from eqsat_layout.targets.cpu.single.skipped_padding import skip_padding
from eqsat_layout.targets.cpu.single.skipped_steps import skip_zero_steps
from eqsat_layout.targets.cpu.single.whole_periods import in_whole_periods
from eqsat_layout.targets.cpu.stage_schedules import NOT_SCHEDULED, StageMeans, in_rows, in_tiles, schedule_stages
from eqsat_layout.targets.cpu.symbolic.kernel import has_symbols, kernel_in_parts
from eqsat_layout.targets.cpu.symbolic.made_ahead import made_ahead
from eqsat_layout.targets.schedules.attempts import isolated, unless_refused
from eqsat_layout.targets.schedules.blocks_in_loops import has_blocks_inside, iterations_of_stages, schedule_inside
from eqsat_layout.targets.schedules.epilogues import epilogue_of, is_in_place
from eqsat_layout.targets.schedules.independent_results import independent_results
from eqsat_layout.targets.schedules.index_of_extreme import split_extremes
from eqsat_layout.targets.schedules.infinities import begins_with_infinity, infinities_exchanged
from eqsat_layout.targets.schedules.math_functions import expand_functions
from eqsat_layout.targets.schedules.narrow_indices import narrow_indices
from eqsat_layout.targets.schedules.quantised_values import quantise_in_few_steps
from eqsat_layout.targets.schedules.remainders import short_remainders
from eqsat_layout.targets.schedules.row_divisors import divide_rows_once
from eqsat_layout.targets.schedules.stages import new_schedule, stages_of
from eqsat_layout.tir.blocks import changes_what_it_reads
from eqsat_layout.tir.intrinsics import calls_library

_SHORT = 1 << 20  # iterations of stages in a loop, below which it costs more to share them than that saves
_SCHEDULED, _OF_HOST = "tirx.is_scheduled", "tirx.is_host_func"


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
            means, kernel = StageMeans(machine, families, is_dense=True), str(name.name_hint)
            scheduled = isolated(partial(_scheduled_func, function, means), f"kernel {kernel}{NOT_SCHEDULED}", notes)
            function = scheduled or function
            for reason in means.refused:
                notes.add(f"kernel {kernel}{reason}")
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def schedule_primfunc(func: Any, machine: CpuMachine, *, families: Sequence[Family] = FAMILIES) -> Any:
    """``func`` scheduled for ``machine``; as it was where that is refused. Faults are raised."""
    return _scheduled_func(func, StageMeans(machine, families, is_dense=True))


def _scheduled_func(func: Any, means: StageMeans) -> Any:
    words = unless_refused(lambda: in_words(func)) if means.machine.byte_products else None
    if words is not None:
        own = replace(means, signed=words.signed)
        done = unless_refused(lambda: words.restored(_scheduled_bytes(words.func, own)))
        if done is not None:
            return done
    return _scheduled_bytes(func, means)


def _scheduled_bytes(func: Any, means: StageMeans) -> Any:
    boxes = boxes_of(func)
    if boxes:  # rows lie as they always do while a schedule is chosen
        own = out_of_boxes(func)
        if any(number < len(func.params) - 1 for number in boxes):
            means = replace(means, signed=None)  # tiles of bytes are loaded by their places in an operand
        means = replace(means, is_dense=False, has_planes=all(box.has_whole_rows for box in boxes.values()))
        return in_boxes(_scheduled_own(own, means), boxes)
    return _scheduled_own(func, means)


def _scheduled_own(func: Any, means: StageMeans) -> Any:
    """``func``, in no boxes."""
    if calls_library(func):  # what its blocks read and write is not all there is
        means.refused[:] = [f"{NOT_SCHEDULED}: it calls a library"]
        return func
    if has_blocks_inside(func):
        return _scheduled(schedule_inside(func, partial(_part, means), means.refused))
    if changes_what_it_reads(func):  # the last vector of a row does some of the one before again
        means.refused[:] = [f"{NOT_SCHEDULED}: it changes what it reads"]
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


def _part(means: StageMeans, func: Any, again: bool) -> Any:
    """Stages of a kernel, which are done ``again`` and again, scheduled."""
    machine = replace(means.machine, cores=1) if again and iterations_of_stages(func) < _SHORT else means.machine
    own = StageMeans(machine, means.families)
    done = _scheduled_own(func, own)
    means.refused.extend(own.refused)
    return done


def _in_parts(func: Any, means: StageMeans) -> Any:
    """``func``, whose sizes are symbolic, in parts of known sizes; ``None`` where it has no such parts."""

    def schedule(part: Any, machine: CpuMachine) -> Any:
        return _scheduled_whole(part, StageMeans(machine, means.families))

    ahead = unless_refused(lambda: made_ahead(func))
    if ahead is not None:
        rest = unless_refused(lambda: kernel_in_parts(ahead.rest, means.machine, schedule))
        return rest and _named(func, _scheduled(ahead.joined(_scheduled_whole(ahead.first, means), rest)))
    kernel = unless_refused(lambda: kernel_in_parts(func, means.machine, schedule))
    return kernel and _named(func, _scheduled(kernel))


def _scheduled_whole(whole: Any, means: StageMeans) -> Any:
    func = narrow_indices(whole if means.machine.is_exact else _named(whole, split_extremes(whole)))
    reasons: list[str] = []
    kernel = _on_matrix_unit(func, means)
    done = kernel or _finished(func, lambda sch: schedule_stages(sch, means), means.machine, reasons)
    if done is None:
        done = unless_refused(lambda: _scheduled(neighbours_in_lanes(func, means.machine)))
    if done is None:
        means.refused[:] = [f"{NOT_SCHEDULED}: {reason}" for reason in reasons]
    return done or whole


def _on_matrix_unit(func: Any, means: StageMeans) -> Any:
    """``func`` as a kernel for the matrix unit; ``None`` where there is none, or none that is faster."""
    split = split_product(func, means.machine, means.signed)
    kernel = split and unless_refused(split.kernel)
    if kernel is not None and not means.machine.is_exact:
        kernel = _with_short_functions(divide_rows_once(kernel))
    return kernel and _named(func, _scheduled(kernel))


def _with_short_functions(func: Any) -> Any:
    """``func`` with functions as arithmetic, which is not exact in NaN and signs of zero."""
    return short_remainders(expand_functions(quantise_in_few_steps(func)))


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
    means = StageMeans(machine, FAMILIES)

    def joined(sch: Any) -> Any:
        plain = simplified_schedule(sch, machine)
        chain = chain_of(stages_of(plain))
        moved = pads_first(sch) if may_move_pads(chain) else None
        fused = moved and in_tiles(moved, machine, nanoseconds, has_pads=True)
        if fused is not None:
            return fused
        sch, is_short = plain, chain.passes <= passes and _has_epilogue(plain)
        fused = in_tiles(sch, machine, nanoseconds) or in_rows(sch, machine)
        return fused or (schedule_stages(sch, means) if is_short else None)

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
