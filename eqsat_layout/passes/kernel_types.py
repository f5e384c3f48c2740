"""Ops whose type says integers where TVM's kernel of them gives floats, or booleans where it gives numbers.

In: a Relax module. Out: the same with these ops as ``call_tir`` of that kernel, and types that say what it gives, down
to the function's own. TVM infers the outer product of int32 and float16, and the deviation of int32, as int32, a sum of
booleans and floats as booleans; its build then takes the kernel's word. A cast to the type that was said would drop
fractions, and make any number of an infinity.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.graph.legalize import REFUSALS
from eqsat_layout.passes.changed_calls import with_changed_calls

_RANKS: Final = ("bool", "int", "float")
"""Kinds of dtypes: each has numbers that those before it have not."""


def say_kernel_types(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is none, or where what reads the result insists on the type that was said."""
    try:
        changed = with_changed_calls(mod, _loses_numbers, _Writer)
        if changed is not mod:
            relax.analysis.well_formed(changed)
    except (tvm.error.InternalError, *REFUSALS):
        return mod
    return changed


def _loses_numbers(call: Any) -> bool:
    """A cast of what the kernel gives to what its type says would."""
    if not isinstance(call.op, tvm.ir.Op) or _rank(call) not in range(_RANKS.index("float")):
        return False
    legalize = call.op.get_attr("FLegalize")
    if legalize is None:
        return False
    builder, made = relax.BlockBuilder(), call
    with builder.function("main", relax.analysis.free_vars(call)):
        with suppress(*REFUSALS):
            made = builder.normalize(legalize(builder, call))
        builder.emit_func_output(relax.Tuple([]))
    return _rank(made) > _rank(call)


def _rank(value: Any) -> int:
    """-1 for what is no tensor of a known dtype."""
    dtype = str(value.ty.dtype or "") if isinstance(value.ty, relax.TensorType) else ""
    kind = dtype.removeprefix("u").removeprefix("b") if dtype != "bool" else dtype
    return next((rank for rank, name in enumerate(_RANKS) if kind.startswith(name)), -1)


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.builder_.normalize(super().visit_call_(call))
        if not isinstance(call, tvm.ir.Call) or not _loses_numbers(call):
            return call
        return self.builder_.normalize(call.op.get_attr("FLegalize")(self.builder_, call))
