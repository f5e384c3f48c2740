"""Ops that join many tensors along an axis, in steps of a few.

In: a Relax module. Out: the same with such ops over at most ``MOST_JOINED`` operands, concats of concats of a few. TVM
writes an element as choices inside of each other, as deep as there are operands: its passes and LLVM take more than
twice as long for twice as many, and each element is sought among all. The result is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.passes.changed_calls import with_changed_calls

MOST_JOINED: Final = 64
"""As many as any network of repute joins at once (49 of DenseNet-201), which are read in one pass as before."""
STEP: Final = 32
"""Of one op in a step: LLVM compiles that many conditions, and checks of operands, in seconds."""
_CONCAT: Final = tvm.ir.Op.get("relax.concat")
_JOINS: Final = (_CONCAT, tvm.ir.Op.get("relax.stack"))


def join_in_steps(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no op has that many operands."""
    return with_changed_calls(mod, _is_wide, _Steps)


def _is_wide(call: Any) -> bool:
    if call.op not in _JOINS or call.attrs.axis is None:  # which TVM legalises no concat without
        return False
    joined = call.args[0]
    return isinstance(joined, relax.Tuple) and len(joined.fields) > MOST_JOINED


@relax.expr_functor.mutator
class _Steps(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not _is_wide(call):
            return call
        parts, op = list(call.args[0].fields), call.op
        axis = int(call.attrs.axis)
        while len(parts) > MOST_JOINED:
            parts = [self._joined(op, some, axis) for some in _batched(parts)]
            op = _CONCAT  # stacked ones have the new axis already
        return relax.op.concat(parts, axis)

    def _joined(self, op: Any, parts: Sequence[Any], axis: int) -> Any:
        join = relax.op.concat if op == _CONCAT else relax.op.stack
        if op == _CONCAT and len(parts) == 1:
            return parts[0]
        return self.builder_.emit(join(parts, axis))


def _batched(parts: Sequence[Any]) -> list[Sequence[Any]]:
    return [parts[first : first + STEP] for first in range(0, len(parts), STEP)]
