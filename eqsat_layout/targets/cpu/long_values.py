"""Nested ``Let`` values that TVM's LLVM code generator can't handle in reasonable time.

In: PrimFuncs after vectorisation. Out: the same, with the values of nested ``Let`` stored in local memory, which LLVM
promotes to registers again. The code generator simplifies each value with all variables in it substituted: for three
functions of one another, as in mish, that is exponential.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.intrinsics import is_choice
from eqsat_layout.tir.structural import body_pass, nodes_of, structural_map_outermost, substitute

LONGEST: Final = 5_000
"""Parts of a value with all names written out: far from where it takes time."""


def keep_long_values() -> Any:
    """A pass."""
    return body_pass("KeepLongValues", (tirx.BufferStore, _kept))


def _kept(store: Any) -> Any:
    flat = _Flat()
    value = flat.of(store.value)
    if flat.longest <= LONGEST:
        return store
    return tirx.SeqStmt([*flat.before, tirx.BufferStore(store.buffer, value, store.indices)])


class _Flat:
    """Expressions whose names are memory that the statements ``before`` them write. All of them: a name that is bound
    by a statement is written out by TVM's simplifier, which takes floats for real numbers. ``longest``: of the values
    as they were."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.longest = 0
        self._sizes: dict[Any, int] = {}

    def of(self, value: Any) -> Any:
        """``value`` without names of its own; what only one branch of a choice computes stays there."""
        return structural_map_outermost(value, (tirx.Let, self._named), (ir.Call, _unless_choice))

    def _named(self, let: Any) -> Any:
        value = self.of(let.value)
        kind, _, lanes = str(value.ty.dtype).partition("x")
        buffer = tirx.decl_buffer((int(lanes or 1),), kind, str(let.var.name), scope="local", layout=None)
        self._sizes[buffer] = sum(self._sizes.get(getattr(one, "source", None), 1) for one in nodes_of(value, ir.Expr))
        self.longest = max(self.longest, self._sizes[buffer])
        place = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), int(lanes)) if lanes else 0
        self.before += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [place])]
        return self.of(substitute(let.body, {let.var: tirx.BufferLoad(buffer, [place])}))


def _unless_choice(call: Any) -> Any:
    """``None``: go on inside."""
    return call if is_choice(call) else None
