"""Steps of random programs: any op that Relax has, with attributes drawn from its own schema.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps. Ops that draw random numbers are left
out, since they give others each time, and those that TVM does not legalise.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

from eqsat_layout.graph.foldable import DIVIDES, call_may_run_at_compile_time
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, dtype_of, is_static, shape_of
from eqsat_layout.soundness.rules.schema import OpCall, all_ops, draw_calls

_SEEDS: Final = 1 << 16
_ATTEMPTS: Final = 20
_OPS: Final = 5
"""Ops that are tried, until one takes the value."""


def any_op(w: FunctionWriter, x: Any) -> Any:
    """One op on a value that is exact: any other may be one step off, where the op has steps."""
    if not is_static(x) or w.known(x).is_rough:
        return None
    first = TensorType(tuple(shape_of(x)), dtype_of(x))
    rng = random.Random(w.choices.below(_SEEDS))
    for name in rng.sample(_usable(), _OPS):
        for drawn in draw_calls(name, first, 2, rng, _ATTEMPTS)[-1:]:
            others = [_operand(w, ty) for ty in drawn.operands[1:]]
            if _may_trap(drawn, others):
                return None
            made = w.emit(drawn.build(w.tame(x), *others), grows=2)
            return made if isinstance(made.ty, relax.TensorType) else None
    return None


def _may_trap(drawn: OpCall, others: list[Any]) -> bool:
    """An integer is divided by one of the operands: by zero it ends the process, stock TVM's too."""
    first = relax.Var("x", relax.TensorType(list(drawn.operands[0].shape), drawn.operands[0].dtype))
    if all(str(one.ty.dtype).startswith(("float", "bool")) for one in (first, *others)):
        return False
    call = relax.BlockBuilder().normalize(drawn.build(first, *others))
    return DIVIDES in (call_may_run_at_compile_time(call, tvm.IRModule()) or "")


@cache
def _usable() -> tuple[str, ...]:
    return tuple(name for name in all_ops() if _is_steady(tvm.ir.Op.get(name)))


def _is_steady(op: Any) -> bool:
    """It can be run, on one machine, and gives the same each time."""
    is_alone = not str(op.name).startswith("relax.ccl.")
    return is_alone and op.get_attr("FLegalize") is not None and bool(op.get_attr("FPurity"))


def _operand(w: FunctionWriter, ty: TensorType) -> Any:
    """Integers may be indices: the first element is always there."""
    shape = [int(extent) for extent in ty.shape]
    if ty.dtype.startswith("float") or ty.dtype == "bool":
        return w.constant(shape, ty.dtype)
    return relax.const(np.zeros(shape, ty.dtype), ty.dtype)


SCHEMA_KINDS: dict[Step, int] = {any_op: 5}
