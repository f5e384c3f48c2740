"""Sorts that TVM's runtime refuses or does wrong: of some types, or of more elements than there are.

In: a Relax module. Out: the same, with elements sorted as a type of the same order, and the first of so many as there
are: TVM infers that type for more, and reads what lies behind them.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.graph.op_calls import with_attributes
from eqsat_layout.passes.changed_calls import with_changed_calls
from eqsat_layout.passes.sorts.rows import KEY_BITS
from eqsat_layout.tir.known_sorts import SORTED_AS

_SORTS: Final = tuple(map(tvm.ir.Op.get, ("relax.sort", "relax.argsort", "relax.topk")))


def sort_known_types(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where all sorts are of such."""
    return with_changed_calls(mod, lambda call: bool(_known(call) or _most(call)), _Widened)


def _known(call: Any) -> str:
    """The dtype to sort as; "" where nothing is in the way."""
    data = call.args[0].ty if call.op in _SORTS else None
    dtype = str(data.dtype) if isinstance(data, relax.TensorType) else ""
    return "" if dtype in KEY_BITS else SORTED_AS.get(dtype, "")


def _most(call: Any) -> int:
    """How many elements there are to be the first ones; 0 where no more are asked for, or that is not known."""
    shape = getattr(call.args[0].ty, "shape", None) if call.op == _SORTS[2] else None
    extents = list(getattr(shape, "values", None) or ())
    extent = extents[int(call.attrs.axis)] if extents else None
    return int(extent) if isinstance(extent, tirx.IntImm) and int(call.attrs.k) > int(extent) else 0


@relax.expr_functor.mutator
class _Widened(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call, emit = super().visit_call_(call), self.builder_.emit
        most, kind = _most(call), _known(call)
        if most:
            call = self.builder_.normalize(with_attributes(call, call.args, {"k": most}))
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
