"""Calls whose results are as large as the data say, by the names that users know them by.

In: a module of kernels, and a call that the host of a device can't do. Out: a text for an error; "" for other calls.
"""

from __future__ import annotations

from typing import Any, Final

import tvm
from tvm import relax

from eqsat_layout.tir.structural import nodes_of

_WHY: Final = "a program for a device knows all sizes before it launches; one for llvm need not"
_PACKED: Final = "relax.call_pure_packed"
_TO_SHAPE: Final = "relax.tensor_to_shape"


def sized_by_data(mod: tvm.IRModule, call: Any) -> str:
    """Which op it is, or which kernels work a shape out, and why that is no part of a program."""
    name = str(getattr(call.op, "name", ""))
    if name == _PACKED and isinstance(call.args[0], relax.ExternFunc):
        own = str(call.args[0].global_symbol)
        shape = getattr(call.ty, "shape", None)
        made = own.removeprefix("relax.run.")
        return f"what {made} gives, whose size the data say: {_WHY}" if shape is None else f"a call of {own}"
    if name == _TO_SHAPE:
        return f"a shape that the data say ({', '.join(_kernels(mod, call.args[0]))}): {_WHY}"
    return ""


def _kernels(mod: tvm.IRModule, tensor: Any) -> list[str]:
    """Those that the tensor comes from, the first one first."""
    values = {
        binding.var: binding.value
        for function in mod.functions.values()
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }
    found: list[str] = []
    left, seen = [tensor], set()
    while left:
        one = left.pop()
        if one in seen or one not in values:
            continue
        seen.add(one)
        value = values[one]
        if isinstance(value, tvm.ir.Call) and isinstance(value.args[0], tvm.ir.GlobalVar) and len(value.args[1].fields):
            found.append(str(value.args[0].name_hint))
        left += nodes_of(value, tvm.ir.Var)
    return found[::-1] or ["an input"]
