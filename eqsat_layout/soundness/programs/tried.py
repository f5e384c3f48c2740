"""What programs are tried for: ``optimize`` alone (``None``), a target, or one of the two ways below.

In: the options of a command. Out: a value for :func:`.trial.check_program`, and back.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, Final

from eqsat_layout.errors import EqsatError, TargetError
from eqsat_layout.targets.cpu.target import CpuTarget
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import target as target_of

EXACTLY: Final = "approx=False"
"""In the place of a target: programs are compiled for this CPU with ``approx=False``, beside TVM's own builds."""


@dataclass(frozen=True)
class Guarded:
    """In the place of a target: programs are compiled for this one, a CPU's, and their kernels are called one by one
    with operands between protected pages."""

    target: Any

    def cpu(self, *, approx: bool = True) -> CpuTarget:
        """The target itself. :class:`TargetError`: there is no such target, or no operands can be guarded there."""
        own = _own(self.target, approx=approx)
        if not isinstance(own, CpuTarget):
            raise TargetError(f"operands are guarded on CPUs only, not for {own.name}")
        return own


def tried_for(target: Any, *, exact: bool = False, guarded: bool = False) -> Any:
    """``exact``: :data:`EXACTLY`; ``guarded``: for ``target``, by default this CPU. :class:`TargetError`: there is no
    such target, this machine does not run its programs, or no operands can be guarded there. :class:`EqsatError`: both
    are asked for."""
    if exact and guarded:
        raise EqsatError("--exact compares numbers and --guarded looks at memory: one of them at a time")
    if guarded:
        tried = Guarded(target or "llvm")
        tried.cpu()
        return tried
    if target is not None:
        _own(target)
    return EXACTLY if exact else target


def _own(target: Any, *, approx: bool = True) -> Target:
    own = target_of(target, approx=approx)
    if isinstance(own, CpuTarget) and own.device is None:
        raise TargetError(f"this machine does not run programs for {own.name}")
    return own


def said(tried: Any) -> str:
    """The options of a command that mean it, each behind a space."""
    if tried == EXACTLY:
        return " --exact"
    if isinstance(tried, Guarded):
        return f"{said(tried.target)} --guarded"
    text = tried if isinstance(tried, str) or tried is None else json.dumps(tried)
    return "" if text is None else f" --target {shlex.quote(text)}"


def is_device(tried: Any) -> bool:
    """Programs are compiled for another target than this CPU."""
    return tried not in (None, EXACTLY)
