"""Ops in their training form, which TVM's passes for inference would take for the other one.

In: a Relax module. Out: the same with ops whose attribute ``training`` is set as ``call_tir`` of what they compute: a
batch norm over the statistics of its own batch keeps its meaning.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from eqsat_layout.passes.changed_calls import with_changed_calls


def write_out_training(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where there is none."""
    return with_changed_calls(mod, _is_training, _Writer)


def _is_training(call: Any) -> bool:
    return isinstance(call.op, tvm.ir.Op) and bool(getattr(call.attrs, "training", False))


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        legalize = call.op.get_attr("FLegalize") if _is_training(call) else None
        return call if legalize is None else self.builder_.normalize(legalize(self.builder_, call))
