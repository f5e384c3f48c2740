"""From a Relax module to an executable, whatever the target.

In: a module of Relax ops and ``call_tir``, and a target. Out: TVM's own executable. One way: legalise, fold constants,
join calls to kernels, schedule, build.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.notes import Notes
from eqsat_layout.passes.fold_constants import Evaluate, fold_constants
from eqsat_layout.passes.prepare import prepare
from eqsat_layout.targets.protocol import Progress, Target
from eqsat_layout.targets.registry import resolved


def prepared(mod: tvm.IRModule, target: Any = None, *, notes: Notes | None = None) -> tvm.IRModule:
    """``mod`` plain for inference (:mod:`eqsat_layout.passes.prepare`), its constants computed on this machine."""
    said = Notes() if notes is None else notes
    return prepare(mod, evaluator(resolved(target), said), said)


def lower(
    mod: tvm.IRModule, target: Any = None, *, progress: Progress | None = None, notes: Notes | None = None
) -> Any:
    """``mod`` built for ``target``: what ``relax.VirtualMachine`` takes.

    ``notes`` collects what could not be done. Raises :class:`~eqsat_layout.errors.TargetError` for a target that can't
    be built for here.
    """
    own, said, say = resolved(target), Notes() if notes is None else notes, progress or _mute
    say("legalize")
    mod = legalize(mod)
    say("fold constants")
    mod = fold_constants(mod, evaluator(own, said), said)
    say("join")
    mod = own.join(mod, said)
    say("build")
    return own.build(mod, said)


def evaluator(target: Target, notes: Notes) -> Evaluate:
    """Computes constants on this machine's CPU, as exactly as ``target`` is asked to be."""
    host = target if target.device == tvm.cpu() else resolved(None, approx=target.approx)

    def evaluate(mod: tvm.IRModule) -> Any:
        executable = host.build(host.join(legalize(mod), notes), notes)
        return relax.VirtualMachine(executable, tvm.cpu())["main"]()

    return evaluate


def _mute(_: str) -> None:
    pass
