"""Axes of reductions that their operands read as two, cut in two.

In: a schedule. Out: a new one in which the reduction runs over both digits of such an axis, where that makes better
tiles; its epilogue puts the results where they belong.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.targets.cpu.machine import CpuMachine
from eqsat_layout.targets.cpu.model.register_tiles import tile_cycles
from eqsat_layout.targets.schedules.accesses import StageAccess
from eqsat_layout.targets.schedules.epilogues import with_epilogue
from eqsat_layout.targets.schedules.stages import Stage, layout_of_results, layout_of_steps, stages_of
from eqsat_layout.tir.structural import substitute

_GAIN = 0.9  # of the cycles of the whole axis, that those of its digits must stay below
_AS_GOOD = 1.1  # of them, where digits let operands be shared: what is read again comes from the cache, and tiles go
# on along its lines (2x2 transposed convolutions took twice as long down the columns of an image)


def split_axes(sch: Any, machine: CpuMachine) -> Any:
    """``sch`` itself where no axis is better cut.

    So where rows of several sequences take turns, tiles are of one sequence each, whose operands they share.
    """
    for number, stage in enumerate(stages_of(sch)):
        if stage.simple and stage.is_plain and stage.is_reduction:
            for axis in range(len(stage.spatial)):
                split = _split(sch, number, axis, machine)
                if split is not None:
                    return split_axes(split, machine)
    return sch


def _split(sch: Any, number: int, axis: int, machine: CpuMachine) -> Any:
    """StageAxis ``axis`` of stage ``number`` cut where its operands cut it; ``None`` where that is no better."""
    stage = stages_of(sch)[number]
    one = stage.spatial[axis]
    size = math.lcm(*(load.period(one.var) or 1 for load in stage.loads))
    if one.extent is None or size in (1, one.extent) or one.extent % size:
        return None
    found = with_epilogue(sch, number, lambda trial: _cut(trial, stage, axis, size))
    if found is None:
        return None
    trial, cut = found
    before, after = (tile_cycles(s, machine, joined=True) for s in (stage, cut))
    least = _AS_GOOD if _shares_more(stage, axis, size) else _GAIN
    return trial if after is not None and (before is None or after < least * before) else None


def _cut(sch: Any, stage: Stage, axis: int, size: int) -> None:
    """The lower digit comes first of all axes where no operand is shared along it: tiles of one part in a row.

    Reduced axes of one element go: TVM would make them axes of the result. The epilogue, in place, is cut as well.
    """
    is_apart = _is_apart(stage, axis, size)
    kept = [i for i, own in enumerate(stage.axes) if not (own.reduce and own.extent == 1)]

    def cut(*indices: Any) -> list[Any]:
        high, low = tirx.floordiv(indices[axis], size), tirx.floormod(indices[axis], size)
        before, after = indices[:axis], indices[axis + 1 :]
        return [low, *before, high, *after] if is_apart else [*before, high, low, *after]

    of_results = layout_of_results(stage, cut)
    of_steps = layout_of_steps(stage, lambda *indices: cut(*(indices[i] for i in kept)))
    sch.transform_layout(stage.block, ("write", 0), of_results)
    sch.transform_block_layout(stage.block, of_steps)
    (epilogue,) = sch.get_consumers(stage.block)
    sch.transform_block_layout(epilogue, of_results)


def _is_apart(stage: Stage, axis: int, size: int) -> bool:
    """Every operand has other elements at every value of the lower digit, and some one has the same for all higher."""
    low, high = zip(*_digits_used(stage, axis, size), strict=True)
    return all(low) and not all(high)


def _shares_more(stage: Stage, axis: int, size: int) -> bool:
    """No operand is shared along the axis, and some one is along a digit of it."""
    is_unshared = all(load.uses(stage.spatial[axis].var) for load in stage.loads)
    return is_unshared and not all(itertools.chain(*_digits_used(stage, axis, size)))


def _digits_used(stage: Stage, axis: int, size: int) -> list[tuple[bool, bool]]:
    """By operand, whether it depends on the (lower, higher) digit."""
    one = stage.spatial[axis]
    high, low = (tirx.Var(name, one.var.ty.dtype) for name in ("high", "low"))
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(high, tvm.ir.Range(0, (one.extent or size) // size))
    analyzer.bind(low, tvm.ir.Range(0, size))
    spread = {one.var: high * size + low}

    def with_digits(load: StageAccess) -> StageAccess:
        return replace(load, indices=tuple(analyzer.simplify(substitute(index, spread)) for index in load.indices))

    return [(load.uses(low), load.uses(high)) for load in map(with_digits, stage.loads)]
