"""Comparisons along an axis, and where their truth changes.

In: a condition and a variable. Out: a :class:`TruthChange`, or nothing for conditions of another kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx

from eqsat_layout.targets.schedules.accesses import as_int, depends_on
from eqsat_layout.tir.structural import nodes_of

COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True)
class TruthChange:
    """``condition`` is ``before`` for numbers below ``place``, and the opposite from there on."""

    condition: Any
    place: Any
    before: bool

    @property
    def number(self) -> int | None:
        """The place, if it is known."""
        return as_int(self.place)


def change_of(condition: Any, var: Any) -> TruthChange | None:
    """Where a comparison of ``var`` changes, with an expression of other variables that reads no memory."""
    is_whole = isinstance(condition, COMPARISONS) and str(condition.a.ty.dtype).startswith("int")
    if not is_whole or not depends_on(condition, var):
        return None
    analyzer = tvm.sym.Analyzer()
    linear = tvm.sym.detect_linear_equation(analyzer.simplify(condition.a - condition.b), [var])
    factor = as_int(linear[0]) if linear else None
    if not factor or nodes_of(linear[1], tvm.ir.TensorLoad, tvm.ir.Call):
        return None
    # v + n < 0 and v + n >= 0 change at -n, v + n <= 0 and v + n > 0 one later; with -v the other way round; of what
    # 2v + n is compared with, the first v of which it is reached
    size, zero = abs(factor), -linear[1] if factor > 0 else linear[1]
    is_early = isinstance(condition, tirx.LT | tirx.GE) == (factor > 0)
    reached = zero + (size - 1) if is_early else zero + size
    place = analyzer.simplify(tirx.floordiv(reached, size) if size > 1 else reached)
    return TruthChange(condition, place, isinstance(condition, tirx.LT | tirx.LE) == (factor > 0))
