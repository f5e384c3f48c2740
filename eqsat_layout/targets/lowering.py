"""From a Relax module to an executable, whatever the target.

In: a module of Relax ops and ``call_tir``, and a target. Out: TVM's own executable. One way: legalise, fold constants,
join calls to kernels, schedule, build.
"""

from __future__ import annotations

import traceback
from typing import Any

import tvm

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.graph.endless_calls import endless_calls
from eqsat_layout.graph.legalize import REFUSALS, legalize
from eqsat_layout.graph.refused_ops import refused_op, too_wide_op
from eqsat_layout.graph.tensor_types import has_several_devices, tensors_not_held
from eqsat_layout.notes import Notes, last_of
from eqsat_layout.passes.fold_constants import fold_constants
from eqsat_layout.passes.guarded_reads import guard_reads
from eqsat_layout.passes.guarded_writes import guard_writes
from eqsat_layout.passes.many_operands import join_in_steps
from eqsat_layout.passes.prepare import prepare
from eqsat_layout.passes.sorts.types import sort_known_types
from eqsat_layout.system.tvm_lock import one_at_a_time
from eqsat_layout.targets.protocol import Progress, Target
from eqsat_layout.targets.registry import resolved


@one_at_a_time
def prepared(mod: tvm.IRModule, target: Any = None, *, notes: Notes | None = None) -> tvm.IRModule:
    """``mod`` plain for inference (:mod:`eqsat_layout.passes.prepare`), on ``target`` if one is given."""
    said = Notes() if notes is None else notes
    if target is None:
        return prepare(mod, said)
    own = resolved(target)
    return prepare(
        mod,
        said,
        has_byte_products=own.has_byte_products,
        has_signed_products=own.has_signed_products,
        byte_rows=own.byte_rows,
        sums_branches=own.approx,
        pairs_operands=own.approx,
        leaves_literals_out=not own.approx,
    )


@one_at_a_time
def lower(
    mod: tvm.IRModule, target: Any = None, *, progress: Progress | None = None, notes: Notes | None = None
) -> Any:
    """``mod`` built for ``target``: what ``relax.VirtualMachine`` takes.

    ``notes`` collects what could not be done. Raises :class:`~eqsat_layout.errors.TargetError` for a target that can't
    be built for here.
    """
    own, said, say = resolved(target), Notes() if notes is None else notes, progress or _mute
    if circle := endless_calls(mod):
        raise TargetError(f"{circle[0]} never returns: it calls itself whatever happens ({' -> '.join(circle)})")
    if not has_several_devices(mod) and (not_held := next(tensors_not_held(mod, own.memories), None)):
        raise TargetError(not_held)
    say("legalize")
    mod = guard_writes(guard_reads(legalize(sort_known_types(join_in_steps(mod)))))
    if wide := too_wide_op(mod):
        raise TargetError(f"TVM can't build {wide}")
    say("fold constants")
    mod = fold_constants(mod, said)
    say("join")
    mod = own.join(mod, said)
    if not isinstance(mod, tvm.IRModule):
        raise TargetError(f"target {own.kind!r}: join must give a tvm.IRModule, got {mod!r}")
    say("build")
    try:
        return own.build(mod, said)
    except (tvm.error.InternalError, *REFUSALS) as error:
        refused = "" if isinstance(error, EqsatError) else refused_op(mod) or _said_by_tvm(error, own)
        if not refused:
            raise
        raise TargetError(f"TVM can't build {refused}") from error


def _said_by_tvm(error: Exception, target: Target) -> str:
    """What TVM raised itself; "" for what was raised here, or by the target's own package, which is a fault."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    packages = {module.partition(".")[0] for module in (__name__, type(target).__module__)}
    is_fault = str(frame.f_globals.get("__name__")).partition(".")[0] in packages
    return "" if is_fault else f"the module: {last_of(error)}"


def _mute(_: str) -> None:
    pass
