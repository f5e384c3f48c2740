"""Several calls as one PrimFunc.

In: the operands of all, and what to do with them. Out: what TVM's FuseTIR makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from eqsat_layout.graph.legalize import legalize
from eqsat_layout.passes.fuse import GROUP


def tir_call(value: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The PrimFunc's variable and the operands of a ``call_tir``; ``None``: something else, or symbolic variables."""
    if not isinstance(value, tvm.ir.Call) or value.op != tvm.ir.Op.get("relax.call_tir") or len(value.args) != 2:
        return None
    callee, args = value.args
    return (callee, tuple(args.fields)) if isinstance(args, relax.Tuple) else None


def merged_primfunc(
    operands: Sequence[Any], body: Callable[[Any, Sequence[Any]], Any], mod: tvm.IRModule | None = None
) -> Any:
    """One PrimFunc of what ``body(builder, variables)`` emits; ``None`` if TVM makes none (int32 shapes, for one).

    ``operands``: expressions of the types of ``variables``, in the order of the parameters. ``mod``: of the PrimFuncs
    that ``body`` calls.
    """
    given = [relax.Var(f"p{number}", operand.ty) for number, operand in enumerate(operands)]
    builder = relax.BlockBuilder(mod)
    with builder.function("joined", given, attrs={GROUP: 1}):
        with builder.dataflow():
            result = builder.emit_output(body(builder, given))
        builder.emit_func_output(result)
    outer = [relax.Var(f"q{number}", var.ty) for number, var in enumerate(given)]
    with builder.function("main", outer):
        with builder.dataflow():
            result = builder.emit_output(tvm.ir.Call(builder.get().get_global_var("joined"), outer))
        builder.emit_func_output(result)
    legalised = legalize(builder.get())
    try:
        fused = relax.transform.FuseTIR()(legalised)
    except tvm.error.InternalError:  # FuseTIR takes fewer PrimFuncs than there are
        return None
    fused = relax.transform.DeadCodeElimination()(fused)
    found = [function for function in fused.functions.values() if isinstance(function, tirx.PrimFunc)]
    return found[0] if len(found) == 1 else None
