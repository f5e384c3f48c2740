"""Sorts of types that TVM's runtime refuses, or takes for whole numbers as bfloat16.

In: a Relax module. Out: the same, with such elements sorted as a type of the same order.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.passes.changed_calls import with_changed_calls

_SORTS: Final = tuple(map(tvm.ir.Op.get, ("relax.sort", "relax.argsort", "relax.topk", "relax.median")))
_KNOWN: Final = {
    "bfloat16": "float32",
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
}
"""By dtype: one that holds its numbers, and that TVM sorts."""


def sort_known_types(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where all sorts are of such."""
    return with_changed_calls(mod, _known, _Widened)


def _known(call: Any) -> str:
    """The dtype to sort as; "" where nothing is in the way."""
    data = call.args[0].ty if call.op in _SORTS else None
    return _KNOWN.get(str(data.dtype), "") if isinstance(data, relax.TensorType) else ""


@relax.expr_functor.mutator
class _Widened(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call, emit = super().visit_call_(call), self.builder_.emit
        kind = _known(call)
        if not kind:
            return call
        data = emit(relax.op.astype(call.args[0], kind))
        made = emit(relax.Call(call.op, [data], call.attrs, call.ty_args))
        if not isinstance(made.ty, relax.TupleType):
            return self._of(made, call.ty)
        parts = [emit(relax.TupleGetItem(made, at)) for at in range(len(made.ty.fields))]
        return relax.Tuple([self._of(part, ty) for part, ty in zip(parts, call.ty.fields, strict=True)])

    def _of(self, value: Any, ty: Any) -> Any:
        dtypes = str(value.ty.dtype), str(ty.dtype)
        return value if dtypes[0] == dtypes[1] else self.builder_.emit(relax.op.astype(value, dtypes[1]))
