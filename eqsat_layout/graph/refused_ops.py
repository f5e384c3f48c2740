"""Ops that TVM can't write as a kernel, found where a build fails.

In: a module whose build raised. Out: which call is at fault and what TVM says of it.
"""

from __future__ import annotations

import tvm
from tvm import relax

from eqsat_layout.graph.legalize import MOST_OPERANDS, REFUSALS, operands
from eqsat_layout.notes import last_of
from eqsat_layout.tir.structural import nodes_of


def too_wide_op(mod: tvm.IRModule) -> str:
    """The same for a call that is not even tried: TVM ends the process at it."""
    for function in mod.functions.values():
        for binding in nodes_of(function, relax.VarBinding) if isinstance(function, relax.Function) else []:
            call = binding.value
            is_op = isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op)
            if is_op and call.op.get_attr("FLegalize") is not None and operands(call) > MOST_OPERANDS:
                says = f"it takes {operands(call)} tensors, more than {MOST_OPERANDS}"
                return f"{call.op.name} of {binding.var.name}: {says}"
    return ""


def refused_op(mod: tvm.IRModule) -> str:
    """``relax.rms_norm of lv3: why``, of the first call whose legalisation raises; "" where none does."""
    for function in mod.functions.values():
        bindings = nodes_of(function, relax.VarBinding) if isinstance(function, relax.Function) else []
        for binding in bindings:
            call = binding.value
            op = call.op if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op) else None
            legalize = None if op is None else op.get_attr("FLegalize")
            if op is None or legalize is None:
                continue
            try:
                legalize(relax.BlockBuilder(), call)
            except REFUSALS as error:
                return f"{op.name} of {binding.var.name}: {last_of(str(error))}"
    return ""
