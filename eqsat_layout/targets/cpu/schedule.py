"""Schedules for every PrimFunc of a module (targets room).

In: unscheduled TE-style PrimFuncs. Out: the same functions, inlined, tiled, vectorised and parallel. Decisions look at
blocks and accesses only; what can't be scheduled comes back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.amx.selection import split_product
from eqsat_layout.targets.cpu.chains.move_pads import may_move_pads, pads_first
from eqsat_layout.targets.cpu.chains.row_nest import row_axes, schedule_row_nest
from eqsat_layout.targets.cpu.chains.tile_nest import schedule_nest
from eqsat_layout.targets.cpu.machine import Machine
from eqsat_layout.targets.cpu.model.chain_model import NestModel, chain_of
from eqsat_layout.targets.cpu.model.register_tiles import (
    JoinedTile,
    evenly_shared,
    joined_tile,
    reduction_pieces,
    register_tile,
)
from eqsat_layout.targets.cpu.single.families import (
    schedule_elementwise,
    schedule_fallback,
    schedule_lanes,
    schedule_pieces,
    schedule_rows,
    schedule_several,
    schedule_tile,
    schedule_tile_relaid,
)
from eqsat_layout.targets.cpu.single.join_axes import join_axes
from eqsat_layout.targets.cpu.single.lane_moves import move_lanes
from eqsat_layout.targets.cpu.single.matrix_sums import write_out_combinations
from eqsat_layout.targets.cpu.single.prefetch import prefetch_panels
from eqsat_layout.targets.cpu.single.split_axes import split_axes
from eqsat_layout.targets.cpu.single.whole_vectors import in_whole_vectors
from eqsat_layout.targets.schedules.epilogues import align_epilogues, epilogue_of, is_in_place, is_relaid
from eqsat_layout.targets.schedules.fuse_rows import fuse_axes
from eqsat_layout.targets.schedules.inlining import inline_producers, tried
from eqsat_layout.targets.schedules.math_functions import expand_functions
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stage_of, stages_of

_LARGEST_BODY = 64  # loads and calls of a block beyond which nothing more is inlined into it
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
    return _on_matrix_unit(func, machine) or _finished(func, lambda sch: _schedule(sch, machine), machine) or func


def _on_matrix_unit(func: Any, machine: Machine) -> Any:
    """``func`` as a kernel for the matrix unit; ``None`` where there is none, or none that is faster."""
    split = split_product(func, machine)
    try:
        return split and _named(func, _scheduled(expand_functions(split.kernel())))
    except Exception:
        return None


def joined_primfunc(func: Any, machine: Machine, *, passes: int, nanoseconds: float) -> Any:
    """``func`` scheduled as one nest; ``None`` where none is faster than its parts, which take ``nanoseconds``.

    With no more than ``passes`` over the data, one whose last stage runs on accumulators is as good.
    """

    def joined(sch: Any) -> Any:
        plain = simplified(sch)
        chain = chain_of(stages_of(plain))
        moved = pads_first(sch) if may_move_pads(chain) else None
        nested = moved and _nested(moved, machine, nanoseconds, has_pads=True)
        if nested is not None:
            return nested
        sch, is_short = plain, chain.passes <= passes and _has_epilogue(plain)
        nested = _nested(sch, machine, nanoseconds) or _in_rows(sch, machine)
        return nested or (_schedule(sch, machine) if is_short else None)

    return _finished(func, joined, machine)


def _has_epilogue(sch: Any) -> bool:
    """The last stage runs on the accumulators of the one before, whatever their tile."""
    stages = stages_of(sch)
    epilogue = epilogue_of(sch, stages[-2]) if stages[1:] else None
    return epilogue is not None and is_in_place(stages[-2], epilogue)


def _finished(func: Any, schedule: Callable[[Any], Any], machine: Machine) -> Any:
    """``func`` under its own name with what ``schedule`` makes of it; ``None`` where that fails."""
    try:
        sch = schedule(new_schedule(func))
        if sch is None:
            return None
        written = write_out_combinations(expand_functions(sch.mod["main"]))
        done = _scheduled(prefetch_panels(written, machine))
    except Exception:
        return None
    return _named(func, done)


def _named(func: Any, done: Any) -> Any:
    """``done`` under the name of ``func``."""
    name = func.attrs.get("global_symbol") if func.attrs else None
    return done.with_attr("global_symbol", name) if name else done.without_attr("global_symbol")


def _scheduled(func: Any) -> Any:
    """``func`` marked as one that is not to be scheduled again."""
    return func.with_attr(_SCHEDULED, True)


def _is_scheduled(func: Any) -> bool:
    return bool(func.attrs and func.attrs.get(_SCHEDULED, False))


def _schedule(sch: Any, machine: Machine) -> Any:
    sch = simplified(sch)
    whole = move_lanes(sch, machine) or _nested(sch, machine) or _in_rows(sch, machine)
    if whole is not None:
        return whole
    sch = _join_tiles(split_axes(sch, machine), machine)
    stages = stages_of(sch)
    done: list[Any] = []
    for stage in stages:
        if any(sch.get(stage.block).same_as(sch.get(block)) for block in done):
            continue
        sch, used = _schedule_stage(sch, stage, machine)
        done.extend(used)
    return sch


def _nested(sch: Any, machine: Machine, nanoseconds: float | None = None, *, has_pads: bool = False) -> Any:
    """All stages in one nest, where TVM can do it and that is faster than apart (in ``nanoseconds``, if known)."""
    chain, model = chain_of(stages_of(sch), has_pads=has_pads), NestModel(machine)
    nest = model.faster(chain, nanoseconds or model.apart(chain)) if chain.is_regular else None
    if nest is None:
        return None
    return tried(sch, lambda s: schedule_nest(s, nest.tile, machine))


def _in_rows(sch: Any, machine: Machine) -> Any:
    """All stages a few rows at a time; ``None`` where they don't work in rows."""
    sch = fuse_axes(sch)
    stages = stages_of(sch)
    count = row_axes(stages)
    if not count:
        return None
    whole = in_whole_vectors(sch, machine.lanes(stages[-1].write.element_bytes))
    for trial in (whole, sch):
        nest = trial and tried(trial, lambda s: schedule_row_nest(s, stages_of(s), count, machine))
        if nest is not None:
            return nest
    return None


def _schedule_stage(sch: Any, stage: Stage, machine: Machine) -> tuple[Any, list[Any]]:
    """The schedule after the best family that works, and the other blocks that it took along."""
    epilogue = epilogue_of(sch, stage)
    attempts: list[tuple[Callable[[Any], None], list[Any]]] = []
    if stage.simple and stage.is_plain and stage.is_reduction:
        if epilogue is not None and is_in_place(stage, epilogue):
            attempts.append((lambda s: schedule_pieces(s, stage, epilogue, machine), [epilogue.block]))
            attempts.append((lambda s: schedule_tile(s, stage, epilogue, machine), [epilogue.block]))
        elif epilogue is not None:
            attempts.append((lambda s: _schedule_relaid(s, stage, epilogue, machine), [epilogue.block]))
        else:
            attempts.append((lambda s: schedule_pieces(s, stage, None, machine), []))
        attempts.append((lambda s: schedule_tile(s, stage, None, machine), []))
        attempts.append((lambda s: schedule_lanes(s, stage, machine), []))
        attempts.append((lambda s: schedule_rows(s, stage, machine), []))
    elif stage.simple and not stage.is_reduction:
        attempts.append((lambda s: schedule_elementwise(s, stage, machine), []))
    elif stage.is_reduction:
        attempts.append((lambda s: schedule_several(s, stage, machine), []))
    attempts.append((lambda s: schedule_fallback(s, stage, machine), []))
    for attempt, used in attempts:
        trial = tried(sch, attempt)
        if trial is not None:
            return trial, used
    return sch, []


def _schedule_relaid(sch: Any, stage: Stage, epilogue: Stage, machine: Machine) -> None:
    if not is_relaid(stage, epilogue):
        raise ValueError("the epilogue mixes elements of a tile with others")
    schedule_tile_relaid(sch, stage, epilogue, machine)


def simplified(sch: Any) -> Any:
    """The same in fewer stages, and epilogues over the axes of their reductions."""
    inlined = inline_producers(sch, _may_inline_all)
    return align_epilogues(sch if inlined is sch else new_schedule(inlined.mod["main"]))


def _may_inline_all(stage: Stage, consumers: Sequence[Stage]) -> bool:
    """Inlining costs no work."""
    if not all(_may_inline(stage, consumer) for consumer in consumers):
        return False
    return not stage.is_costly or sum(consumer.domain for consumer in consumers) <= stage.domain


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
    reused = any(not read.uses(axis.var) for read in reads for axis in consumer.spatial if axis.extent != 1)
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
    joined = _with_joined_axes(sch, stage, tile)
    even = evenly_shared(stage, tile, machine)
    if joined is None or even == tile or _is_in_pieces(joined, stage.name, machine):
        return joined
    return _with_joined_axes(sch, stage, even)


def _with_joined_axes(sch: Any, stage: Stage, tile: JoinedTile) -> Any:
    trial = sch.copy()
    try:
        epilogue = epilogue_of(trial, stage)
        if epilogue is None:
            epilogue = stage_of(trial, trial.cache_write(stage.block, 0, "global"))
            stage = stage_of(trial, stage.block)
        return join_axes(trial, stage, epilogue, tile) if is_in_place(stage, epilogue) else None
    except Exception:
        return None


def _is_in_pieces(sch: Any, name: str, machine: Machine) -> bool:
    """A reduction is done in pieces, for which cores take panels."""
    stage = stage_of(sch, sch.get_sblock(name))
    tile = register_tile(stage, machine)
    return tile is not None and reduction_pieces(stage, tile, machine) > 1
