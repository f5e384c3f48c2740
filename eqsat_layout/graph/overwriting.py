"""Functions that overwrite tensors in place.

In: an IRModule. Out: the names of the functions in which two equal values may not become one tensor, because a call
overwrites it, there or in a function that is called. They are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tvm import ir, relax

_IN_PLACE: Final = ("relax.call_tir_inplace", "relax.call_inplace_packed")


def functions_that_overwrite(mod: Any) -> set[str]:
    """Names of the Relax functions that overwrite, or call one that does."""
    callees: dict[str, set[str]] = {}
    found: set[str] = set()
    for global_var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            name = str(global_var.name_hint)
            callees[name] = set()
            for op in _called(function.body):
                if isinstance(op, ir.GlobalVar):
                    callees[name].add(str(op.name_hint))
                elif isinstance(op, ir.Op) and op.name in _IN_PLACE:
                    found.add(name)
    while more := {name for name, called in callees.items() if called & found} - found:
        found |= more
    return found


def _called(expr: Any) -> Iterator[Any]:
    """What is called in a body, in its branches and in its local functions."""
    if isinstance(expr, relax.SeqExpr):
        for block in expr.blocks:
            for binding in block.bindings:
                yield from _called(binding.value)
    elif isinstance(expr, ir.Call):
        yield expr.op
    elif isinstance(expr, relax.If):
        yield from _called(expr.true_branch)
        yield from _called(expr.false_branch)
    elif isinstance(expr, relax.Function):
        yield from _called(expr.body)
