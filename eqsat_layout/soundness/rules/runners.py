"""What runs an op in models: the interpreter of its TIR, or, where it has none, TVM's own build of it.

In: a call. Out: what takes operands with worlds in front and gives results. Only ops of one operand are built:
one that reads where another says may read out of bounds, and that is not caught in a build.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.errors import ILL_TYPED
from eqsat_layout.soundness.oracle.tir_interpreter import InterpreterError, Masked
from eqsat_layout.soundness.rules.schema import Call

_OUTSIDE = ("call_packed", "call_extern", "call_dps_packed", "call_cpacked", "call_pure_packed")
"""Calls that may do anything."""
_SORTING = re.compile(r"call_\w*packed\(\s*\"tvm\.contrib\.sort\.")
"""Calls that sort, which is well defined where no number is NaN."""


class Runs(Protocol):
    """An op that can be run."""

    def run(self, operands: Sequence[Masked]) -> list[Masked]:
        """Its results, all worlds at once."""
        ...


class Built:
    """One call, built for this machine as TVM does it; one that ``orders`` has no value for NaN."""

    def __init__(self, machine: Any, *, orders: bool = False):
        self._machine, self._orders = machine, orders

    def run(self, operands: Sequence[Masked]) -> list[Masked]:
        """Its results, one world after the other."""
        if self._orders and any(o.values.dtype.kind == "f" and np.isnan(o.values).any() for o in operands):
            raise InterpreterError("NaN has no place in an order")
        worlds = [self._run_world([o.values[w] for o in operands]) for w in range(len(operands[0].values))]
        return [Masked.of(np.stack(results)) for results in zip(*worlds, strict=True)]

    def _run_world(self, operands: Sequence[Any]) -> list[Any]:
        result = self._machine["main"](*(tvm.runtime.tensor(np.ascontiguousarray(o)) for o in operands))
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [field.numpy() for field in fields]


def build_call(call: Call) -> Built | str:
    """The call, built; or why that can't be."""
    if len(call.operands) != 1:
        return "it has no TIR, and several operands"
    builder = relax.BlockBuilder()
    (variable,) = call.variables
    try:
        with builder.function("main", [variable]):
            with builder.dataflow():
                output = builder.emit_output(call.build(variable))
            builder.emit_func_output(output)
        mod = builder.finalize()
        with tvm.target.Target("llvm"):
            legal = relax.transform.LegalizeOps()(relax.backend.DispatchSortScan()(mod)).script()
        calls = sum(legal.count(word) for word in _OUTSIDE)
        sorts = len(_SORTING.findall(legal))
        if calls > sorts:
            return "it has no TIR: it calls code from outside"
        if sorts and not variable.ty.ndim:
            return "it has no TIR, and a number alone has no order"
        return Built(relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu()), orders=bool(sorts))
    except (AttributeError, *ILL_TYPED) as error:  # some of TVM's own rules name functions that it no longer has
        return f"it has no TIR, and TVM does not build it: {str(error).strip().splitlines()[-1]}"
