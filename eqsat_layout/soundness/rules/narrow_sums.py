"""Sums in narrow floats, which end where one more is rounded off.

In: a call of an op. Out: whether it is such a sum, by its TIR, along an axis that is long enough to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tvm
from tvm import tirx

from eqsat_layout.graph.graph import Signature
from eqsat_layout.soundness.rules.known_ops import imports, primfuncs_of, zeros_of
from eqsat_layout.soundness.rules.runners import RunnableOp
from eqsat_layout.soundness.rules.schema import LARGEST, OpCall
from eqsat_layout.tir.structural import nodes_of

_NARROW = ("float16", "bfloat16")


def has_long_axis(call: OpCall) -> bool:
    """Whether an operand has a long axis."""
    return any(int(extent) > LARGEST for ty in call.operands for extent in ty.shape)


@lru_cache(1024)
def adds_narrowly(call: OpCall) -> bool:
    """Whether it adds to narrow floats that it has stored before: a sum, or a running one."""
    return any(_adds(kernel) for signature, runner in _ops(call) for kernel in primfuncs_of(signature, runner))


@lru_cache(1024)
def adds_many(call: OpCall) -> bool:
    """The same of one that goes step by step along a long axis."""
    longest = max((int(extent) for ty in call.operands for extent in ty.shape), default=0)
    return has_long_axis(call) and adds_narrowly(call) and any(_work(*op) >= longest for op in _ops(call))


def _ops(call: OpCall) -> Sequence[tuple[Signature, RunnableOp]]:
    (imported,) = imports().of([call], (call.name,))
    return imported.ops


def _adds(kernel: Any) -> bool:
    return any(
        load.source.same_as(store.buffer)
        for store in nodes_of(kernel.body, tirx.BufferStore)
        if str(store.value.ty.dtype) in _NARROW
        for addition in nodes_of(store.value, tirx.Add)
        for load in nodes_of(addition, tvm.ir.TensorLoad)
    )


def _work(signature: Signature, runner: RunnableOp) -> int:
    """Expressions that one run evaluates: along other axes it computes with whole arrays."""
    before = runner.work
    runner.run(zeros_of(signature))
    return runner.work - before
