"""Schedules for every PrimFunc of a module (targets room).

In: unscheduled TE-style PrimFuncs. Out: the same functions, inlined, tiled, vectorised and parallel. Decisions look at
blocks and accesses only; what can't be scheduled comes back as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.targets.base import Machine
from eqsat_layout.targets.families import (
    schedule_elementwise,
    schedule_fallback,
    schedule_lanes,
    schedule_tile,
    schedule_tile_relaid,
)
from eqsat_layout.targets.functions import expand_functions
from eqsat_layout.targets.joined_axes import join_axes
from eqsat_layout.targets.stages import Stage, new_schedule, stage_of, stages_of
from eqsat_layout.targets.tiles import joined_tile

_LARGEST_BODY = 64  # loads and calls of a block beyond which nothing more is inlined into it
_FEW_STEPS = 16  # of a product, so few that LLVM writes them out and mixes them with what follows
_JOINS = 2  # of the vector axis, and of others
_SCHEDULED = "tirx.is_scheduled"


def schedule_module(mod: tvm.IRModule, machine: Machine) -> tvm.IRModule:
    """``mod`` with every PrimFunc scheduled that was not. The input is not changed."""
    functions: dict[Any, Any] = {}
    for name, function in mod.functions.items():
        if isinstance(function, tirx.PrimFunc) and not _is_scheduled(function):
            function = schedule_primfunc(function, machine)
        functions[name] = function
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def schedule_primfunc(func: Any, machine: Machine) -> Any:
    """``func`` scheduled for ``machine``; as it was where TVM can't schedule it at all."""
    try:
        sch = new_schedule(func)
        scheduled = expand_functions(_schedule(sch, machine).mod["main"]).with_attr(_SCHEDULED, True)
    except Exception:
        return func
    name = func.attrs.get("global_symbol") if func.attrs else None
    return scheduled.with_attr("global_symbol", name) if name else scheduled.without_attr("global_symbol")


def _is_scheduled(func: Any) -> bool:
    return bool(func.attrs and func.attrs.get(_SCHEDULED, False))


def _schedule(sch: Any, machine: Machine) -> Any:
    sch = _join_tiles(_inline_producers(sch), machine)
    stages = stages_of(sch)
    done: list[Any] = []
    for stage in stages:
        if any(sch.get(stage.block).same_as(sch.get(block)) for block in done):
            continue
        sch, used = _schedule_stage(sch, stage, machine)
        done.extend(used)
    return sch


def _schedule_stage(sch: Any, stage: Stage, machine: Machine) -> tuple[Any, list[Any]]:
    """The schedule after the best family that works, and the other blocks that it took along."""
    epilogue = _epilogue(sch, stage)
    attempts: list[tuple[Callable[[Any], None], list[Any]]] = []
    if stage.simple and stage.is_plain and stage.is_reduction:
        if epilogue is not None and _in_place(stage, epilogue):
            attempts.append((lambda s: schedule_tile(s, stage, epilogue, machine), [epilogue.block]))
        elif epilogue is not None:
            attempts.append((lambda s: _schedule_relaid(s, stage, epilogue, machine), [epilogue.block]))
        attempts.append((lambda s: schedule_tile(s, stage, None, machine), []))
        attempts.append((lambda s: schedule_lanes(s, stage, machine), []))
    elif stage.simple and not stage.is_reduction:
        attempts.append((lambda s: schedule_elementwise(s, stage, machine), []))
    attempts.append((lambda s: schedule_fallback(s, stage, machine), []))
    for attempt, used in attempts:
        trial = sch.copy()
        try:
            attempt(trial)
        except Exception:
            continue
        return trial, used
    return sch, []


def _epilogue(sch: Any, stage: Stage) -> Stage | None:
    """The one elementwise consumer that can run on the accumulators of ``stage``."""
    consumers = sch.get_consumers(stage.block)
    if not stage.is_reduction or len(consumers) != 1 or _is_parameter(sch, stage):
        return None
    consumer = stage_of(sch, consumers[0])
    if not consumer.simple or consumer.is_reduction or not (consumer.is_plain or _in_place(stage, consumer)):
        return None
    is_product = bool(stage.spatial) and any(load.stride(stage.spatial[-1].var) == 0 for load in stage.loads)
    if consumer.is_costly and is_product and math.prod(a.extent or 64 for a in stage.reduced) <= _FEW_STEPS:
        return None
    return consumer if consumer.domain == math.prod(a.extent or 64 for a in stage.spatial) else None


def _in_place(stage: Stage, epilogue: Stage) -> bool:
    """The epilogue reads the elements of ``stage`` at the indices at which it writes."""
    own = [load for load in epilogue.loads if load.buffer.same_as(stage.write.buffer)]
    return all(
        len(load.indices) == len(epilogue.axes)
        and all(index.same_as(axis.var) for index, axis in zip(load.indices, epilogue.axes, strict=True))
        for load in own
    ) and [a.extent for a in epilogue.axes] == [a.extent for a in stage.spatial]


def _schedule_relaid(sch: Any, stage: Stage, epilogue: Stage, machine: Machine) -> None:
    if not _relays(stage, epilogue):
        raise ValueError("the epilogue mixes elements of a tile with others")
    schedule_tile_relaid(sch, stage, epilogue, machine)


def _relays(stage: Stage, epilogue: Stage) -> bool:
    """The epilogue reads every element of ``stage`` for one element of its own, always at the same indices."""
    own = [load for load in epilogue.loads if load.buffer.same_as(stage.write.buffer)]
    first = list(own[0].indices)
    if any(not tvm_ffi.structural_equal(list(load.indices), first) for load in own):
        return False
    ranges = {axis.var: tvm.ir.Range(0, axis.extent or 64) for axis in epilogue.axes}
    level = tvm.sym.iter_affine_map.IterMapLevel.Bijective
    return len(tvm.sym.detect_iter_map(first, ranges, check_level=level).indices) == len(first)


def _is_parameter(sch: Any, stage: Stage) -> bool:
    """The stage writes a buffer of the function's signature."""
    buffers = sch.get(sch.get_sblock("root")).alloc_buffers
    return not any(stage.write.buffer.same_as(buffer) for buffer in buffers)


def _inline_producers(sch: Any) -> Any:
    """Inlines elementwise stages into their readers where that costs no work."""
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        stage = stage_of(sch, block)
        if not stage.simple or stage.is_reduction or _is_parameter(sch, stage):
            continue
        consumers = [stage_of(sch, c) for c in sch.get_consumers(block)]
        if not consumers or not all(_may_inline(stage, consumer) for consumer in consumers):
            continue
        if stage.is_costly and sum(consumer.domain for consumer in consumers) > stage.domain:
            continue
        trial = sch.copy()
        try:
            trial.compute_inline(block)
        except Exception:
            continue
        sch = trial
    return sch


def _may_inline(stage: Stage, consumer: Stage) -> bool:
    reads = [load for load in consumer.loads if load.buffer.same_as(stage.write.buffer)]
    if not consumer.simple or consumer.size + len(reads) * stage.size > _LARGEST_BODY:
        return False
    if not consumer.is_reduction:
        return True
    identity = (
        stage.is_copy
        and all(index.same_as(axis.var) for index, axis in zip(stage.loads[0].indices, stage.axes, strict=False))
        and len(stage.loads[0].indices) == len(stage.axes)
    )
    if identity:
        return True
    reused = any(not read.uses(axis.var) for read in reads for axis in consumer.spatial)
    lane = stage.axes[-1].var
    return not reused and not stage.branches_on(lane)


def _join_tiles(sch: Any, machine: Machine) -> Any:
    """Reductions over tiles of several axes at once, or that overlap, where such tiles use the registers better."""
    for number in range(len(stages_of(sch))):
        for _ in range(_JOINS):
            joined = _joined(sch, stages_of(sch)[number], machine)
            if joined is None:
                break
            sch = joined
    return sch


def _joined(sch: Any, stage: Stage, machine: Machine) -> Any:
    if not (stage.simple and stage.is_plain and stage.is_reduction):
        return None
    tile = joined_tile(stage, machine)
    if tile is None:
        return None
    trial = sch.copy()
    try:
        epilogue = _epilogue(trial, stage)
        if epilogue is None:
            epilogue = stage_of(trial, trial.cache_write(stage.block, 0, "global"))
            stage = stage_of(trial, stage.block)
        return join_axes(trial, stage, epilogue, tile) if _in_place(stage, epilogue) else None
    except Exception:
        return None
