"""From a Relax module to an executable, whatever the target.

In: a module of Relax ops and ``call_tir``, and a target. Out: TVM's own executable. One way: legalise, fold constants,
join calls to kernels, schedule, build.
"""

from __future__ import annotations

from typing import Any

import tvm

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.graph.legalize import REFUSALS, legalize
from eqsat_layout.graph.refused_ops import refused_op
from eqsat_layout.notes import Notes
from eqsat_layout.passes.empty_reductions import begin_empty_reductions
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.prepare import prepare
from eqsat_layout.system.turns import one_at_a_time
from eqsat_layout.targets.protocol import Progress
from eqsat_layout.targets.registry import resolved


@one_at_a_time
def prepared(mod: tvm.IRModule, *, notes: Notes | None = None) -> tvm.IRModule:
    """``mod`` plain for inference (:mod:`eqsat_layout.passes.prepare`)."""
    return prepare(mod, Notes() if notes is None else notes)


@one_at_a_time
def lower(
    mod: tvm.IRModule, target: Any = None, *, progress: Progress | None = None, notes: Notes | None = None
) -> Any:
    """``mod`` built for ``target``: what ``relax.VirtualMachine`` takes.

    ``notes`` collects what could not be done. Raises :class:`~eqsat_layout.errors.TargetError` for a target that can't
    be built for here.
    """
    own, said, say = resolved(target), Notes() if notes is None else notes, progress or _mute
    say("legalize")
    mod = begin_empty_reductions(legalize(mod))
    say("fold constants")
    mod = fold_constants(mod, said)
    say("join")
    mod = own.join(mod, said)
    say("build")
    try:
        return own.build(mod, said)
    except (tvm.error.InternalError, *REFUSALS) as error:
        if isinstance(error, EqsatError) or not (refused := refused_op(mod)):
            raise
        raise TargetError(f"TVM can't build {refused}") from error


def _mute(_: str) -> None:
    pass
