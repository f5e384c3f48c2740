"""What runs an op in models that is not one PrimFunc: what it is legalised to, interpreted, or TVM's own build of it.

In: a call. Out: what takes operands with worlds in front and gives results. Only ops of one operand are built:
one that reads where another says may read out of bounds, and that is not caught in a build.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.graph.legalize import REFUSALS, legalize
from eqsat_layout.soundness.oracle.relax_interpreter import NotInterpretable, RelaxInterpreter
from eqsat_layout.soundness.oracle.tir_interpreter import InterpreterError, Masked
from eqsat_layout.soundness.oracle.tir_sorts import call_library, sort_call
from eqsat_layout.soundness.rules.bits import DEVICE_WORLD
from eqsat_layout.soundness.rules.schema import OpCall
from eqsat_layout.tir.arithmetic import are_floats

_OUTSIDE = ("call_packed", "call_extern", "call_dps_packed", "call_cpacked", "call_pure_packed")
"""Calls that may do anything."""
_SORTING = re.compile(r"call_\w*packed\(\s*\"tvm\.contrib\.sort\.")
"""Calls that sort, which is well defined where no number is NaN."""


class RunnableOp(Protocol):
    """An op that can be run."""

    @property
    def work(self) -> int:
        """Expressions that the reference interpreter evaluated for it so far."""
        ...

    def run(self, operands: Sequence[Masked]) -> list[Masked]:
        """Its results, all worlds at once."""
        ...


class BuiltOp:
    """One call, built for this machine as TVM does it; one that ``orders`` has no value for NaN."""

    work = 0

    def __init__(self, machine: Any, *, orders: bool = False):
        self._machine, self._orders = machine, orders

    def run(self, operands: Sequence[Masked]) -> list[Masked]:
        """Its results, one world after the other."""
        if self._orders and any(are_floats(o.values.dtype) and np.isnan(o.values).any() for o in operands):
            raise InterpreterError("NaN has no place in an order")
        worlds = [self._run_world([o.values[w] for o in operands]) for w in range(len(operands[0].values))]
        return [Masked.of(np.stack(results)) for results in zip(*worlds, strict=True)]

    def _run_world(self, operands: Sequence[Any]) -> list[Any]:
        result = self._machine["main"](*(tvm.runtime.tensor(np.ascontiguousarray(o)) for o in operands))
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [field.numpy() for field in fields]


@dataclass(frozen=True)
class LibraryCall:
    """A PrimFunc that is one call of TVM's own library of sorts: nothing is built, which takes most of a model's time.

    ``settings``: the numbers and words behind the arrays. ``results``: shapes and dtypes.
    """

    name: str
    settings: tuple[Any, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]

    @staticmethod
    def of(mod: Any) -> LibraryCall | None:
        """The call that a legalised module consists of; None if it is anything else."""
        funcs = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
        calls = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
        if len(funcs) != 1 or len(calls) != 1 or calls[0].op.name != "relax.call_tir":
            return None
        body = funcs[0].body
        while isinstance(body, s_tir.SBlockRealize):
            body = body.block.body
        found = sort_call(body)
        if found is None:
            return None
        name, arrays, settings = found
        params = list(funcs[0].params)
        if len(arrays) != len(params) or not all(a.same_as(p) for a, p in zip(arrays, params, strict=True)):
            return None
        results = tuple((tuple(int(e) for e in p.ty.shape), str(p.ty.dtype)) for p in params[1:])
        return LibraryCall(name, tuple(settings), results)

    def __getitem__(self, _function: str) -> Callable[..., Any]:
        """What runs it, as a virtual machine has it."""
        return self._run

    def _run(self, operand: Any) -> Any:
        made = [tvm.runtime.empty(shape, dtype) for shape, dtype in self.results]
        call_library(self.name, [operand, *made], self.settings)
        return made[0] if len(made) == 1 else made


@dataclass(frozen=True)
class LegalisedOp:
    """One call as the ops and PrimFuncs that TVM's legalisation makes of it, interpreted."""

    mod: Any

    @staticmethod
    def of(call: OpCall) -> LegalisedOp:
        """The call, legalised; one that samples as TVM does it on this machine."""
        with tvm.target.Target("llvm"):
            sampled = relax.backend.DispatchSampling()(call.module())
            return LegalisedOp(legalize(relax.backend.DispatchSortScan()(sampled)))

    @cached_property
    def _interpreter(self) -> RelaxInterpreter:
        return RelaxInterpreter(self.mod, DEVICE_WORLD)

    @property
    def work(self) -> int:
        """Of all kernels."""
        return self._interpreter.work

    def run(self, operands: Sequence[Masked]) -> list[Masked]:
        """Its results, all worlds at once."""
        worlds = len(operands[0].values)
        try:
            result = self._interpreter.call("main", [o.values for o in operands])
        except NotInterpretable as error:
            kind = type(error.__cause__) if isinstance(error.__cause__, InterpreterError) else InterpreterError
            raise kind(str(error)) from error
        results = result if isinstance(result, list) else [result]
        return [Masked.of(np.broadcast_to(one, (worlds, *one.shape[1:]))) for one in results]


def is_sort(func: Any) -> bool:
    """Whether a PrimFunc sorts by TVM's own library, which no interpreter has words for."""
    return _SORTING.search(func.script()) is not None


@lru_cache(1000)
def build_call(call: OpCall) -> BuiltOp:
    """The call, built; :class:`InterpreterError` says why that can't be."""
    if len(call.operands) != 1:
        raise InterpreterError("it has no TIR, and several operands")
    (variable,) = call.variables
    try:
        mod = call.module()
        with tvm.target.Target("llvm"):
            legal = legalize(relax.backend.DispatchSortScan()(mod))
        text = legal.script()
        calls = sum(text.count(word) for word in _OUTSIDE)
        sorting = len(_SORTING.findall(text))
        if calls > sorting:
            raise InterpreterError("it has no TIR: it calls code from outside")
        if sorting and not variable.ty.ndim:
            raise InterpreterError("it has no TIR, and a number alone has no order")
        machine = LibraryCall.of(legal) or relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
        return BuiltOp(machine, orders=bool(sorting))
    except REFUSALS as error:
        reason = (str(error).strip() or repr(error)).splitlines()[-1]
        raise InterpreterError(f"it has no TIR, and TVM does not build it: {reason}") from error
