"""Ops in their training form, which TVM's passes for inference would take for the other one.

In: a Relax module. Out: the same with ops whose attribute ``training`` is set as ``call_tir`` of what they compute: a
batch norm over the statistics of its own batch keeps its meaning.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


def write_out_training(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is none."""
    if not any(map(_is_training, _calls(mod))):
        return mod
    writer = _Writer(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            writer.builder_.update_func(var, writer.visit_expr(function))
    return writer.builder_.get()


def _calls(mod: tvm.IRModule) -> list[Any]:
    found: list[Any] = []
    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, lambda e: found.append(e) if isinstance(e, tvm.ir.Call) else None)
    return found


def _is_training(call: Any) -> bool:
    return isinstance(call.op, tvm.ir.Op) and bool(getattr(call.attrs, "training", False))


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        legalize = call.op.get_attr("FLegalize") if _is_training(call) else None
        return call if legalize is None else self.builder_.normalize(legalize(self.builder_, call))
