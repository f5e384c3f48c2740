"""The build of a Relax module for a target (targets room).

In: a Relax module (Relax ops and ``call_tir``) and a target. Out: TVM's own executable.
"""

from __future__ import annotations

from typing import Any

import tvm

from eqsat_layout.targets.cpu.build import build_llvm
from eqsat_layout.targets.cpu.target import Progress, normalize_target


def lower(mod: tvm.IRModule, target: Any = None, *, progress: Progress | None = None) -> Any:
    """``mod`` built for ``target``: what ``relax.VirtualMachine`` takes.

    Raises :class:`~eqsat_layout.errors.TargetError` for a target that can't be built for here.
    """
    return build_llvm(mod, normalize_target(target), progress=progress)
