"""Kernels that read elements of their operands several times or from all over: resizes, reflecting pads, sums of
elements of several rows.

In: a module whose PrimFuncs TVM has grouped by pattern. Out: the same, in which these take along what follows them but
not what is before them. What is computed where it is read would be computed again for each reading; and rows that lie
in memory as they are read are read in whole vectors (:mod:`eqsat_layout.targets.cpu.single.lane_moves`), which a
transpose that is part of the kernel would break up.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import tvm
import tvm_ffi

from eqsat_layout.targets.cpu.single.lane_moves import MOST_SQUARES
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.targets.schedules.stages import Stage, new_schedule, stages_of
from eqsat_layout.tir.structural import with_primfuncs

_INJECTIVE: Final = 2
_FOLLOWED: Final = 4
"""TVM's numbers (``OpPatternKind``) for what each element of the operands goes to somewhere, and for what only
elementwise work may follow."""


def keep_what_is_read_often(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with other patterns; it is not changed itself."""

    def changed(_: str, func: Any) -> Any:
        is_injective = int(func.attrs.get("op_pattern", -1)) == _INJECTIVE
        return func.with_attr("op_pattern", _FOLLOWED) if is_injective and reads_often(func) else func

    return with_primfuncs(mod, changed)


def reads_often(func: Any) -> bool:
    """It is one stage that jumps in reading fewer elements than it makes, or adds elements of several rows."""
    sch = unless_refused(lambda: new_schedule(func))
    stages = stages_of(sch) if sch is not None else []
    if len(stages) != 1 or stages[0].is_reduction or not stages[0].simple:
        return False
    return _repeats(stages[0]) or _adds_rows(stages[0])


def _repeats(stage: Stage) -> bool:
    """Fewer elements are read than made, by jumps along the last axis."""
    made = math.prod(axis.extent or 0 for axis in stage.axes)
    jumping = [load for load in stage.loads if load.stride(stage.axes[-1].var) is None]
    return any(0 < math.prod(extent or 0 for extent in load.shape) < made for load in jumping)


def _adds_rows(stage: Stage) -> bool:
    """It reads more elements of one operand than a transpose can follow, all along rows as the result is."""
    if not all(load.stride(stage.axes[-1].var) == 1 for load in stage.loads):
        return False
    places = {(load.buffer, tvm_ffi.structural_hash(list(load.indices))) for load in stage.loads}
    return max(Counter(buffer for buffer, _ in places).values(), default=0) > MOST_SQUARES
