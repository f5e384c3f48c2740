"""The ops that Relax has.

In: TVM's registry, or a module. Out: their names, and those that are nearest to a name that is none of them.
"""

from __future__ import annotations

import difflib
from functools import cache
from typing import Any

import tvm
from tvm import relax

RELAX = "relax."
"""What their names begin with."""

_NEAR = 3


@cache
def relax_ops() -> frozenset[str]:
    """Names of all of them."""
    return frozenset(name for name in map(str, tvm.ir.Op.list_op_names()) if name.startswith(RELAX))


def ops_in(mod: tvm.IRModule) -> list[str]:
    """Names of those that the functions of a module call."""
    found: set[str] = set()

    def note(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name.startswith(RELAX):
            found.add(expr.op.name)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    return sorted(found)


def nearest_ops(name: str) -> list[str]:
    """Those of the nearest last names, of the same one only where there is any: relax.relu is relax.nn.relu."""
    ops: dict[str, list[str]] = {}
    for op in sorted(relax_ops()):
        ops.setdefault(op.rpartition(".")[2], []).append(op)
    last = name.rpartition(".")[2]
    near = [last] if last in ops else difflib.get_close_matches(last, ops, _NEAR)
    return [op for one in near for op in ops[one]][:_NEAR]
