"""Ops that TVM can't write as a kernel, found where a build fails.

In: a module whose build raised. Out: which call is at fault and what TVM says of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax

from eqsat_layout.graph.legalize import MOST_OPERANDS, REFUSALS, operands
from eqsat_layout.notes import last_of
from eqsat_layout.tir.structural import nodes_of


def too_wide_op(mod: tvm.IRModule) -> str:
    """The same for a call that is not even tried: TVM ends the process at it."""
    for call, of, _ in _legalisable(mod):
        if operands(call) > MOST_OPERANDS:
            return f"{of}: it takes {operands(call)} tensors, more than {MOST_OPERANDS}"
    return ""


def refused_op(mod: tvm.IRModule) -> str:
    """``relax.rms_norm of lv3: why``, of the first call whose legalisation raises; "" where none does."""
    for call, of, legalize in _legalisable(mod):
        try:
            legalize(relax.BlockBuilder(), call)
        except REFUSALS as error:
            return f"{of}: {last_of(error)}"
    return ""


def _legalisable(mod: tvm.IRModule) -> Iterator[tuple[Any, str, Any]]:
    """Calls of ops that TVM has a legalisation of, what they are called, and that legalisation."""
    for function in mod.functions.values():
        for binding in nodes_of(function, relax.VarBinding) if isinstance(function, relax.Function) else ():
            call = binding.value
            if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op):
                legalize = call.op.get_attr("FLegalize")
                if legalize is not None:
                    yield call, f"{call.op.name} of {binding.var.name}", legalize
