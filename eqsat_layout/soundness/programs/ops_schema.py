"""Steps of random programs: any op that Relax has, with attributes drawn from its own schema.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps. Ops that draw random numbers are left
out, since they give others each time, and those that nothing makes kernels of.
"""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.graph.foldable import DIVIDES, call_may_run_at_compile_time
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.graph.legalize import REFUSALS, legalize
from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, dtype_of, is_static, shape_of
from eqsat_layout.soundness.rules.call_search import CallSearch
from eqsat_layout.soundness.rules.known_ops import stays_inside, unusable
from eqsat_layout.soundness.rules.schema import OpCall, all_ops, draw_calls, normalized

_SEEDS: Final = 1 << 16
_ATTEMPTS: Final = 20
_OPS: Final = 5
"""Ops that are tried, until one takes the value."""
_CLIMBS: Final = 16
_STEPS: Final = 300
"""Of one search for a call; of so many searches for each op."""


def any_op(w: FunctionWriter, x: Any) -> Any:
    """One op on a value that is exact: any other may be one step off, where the op has steps. All of its results."""
    if not is_static(x) or w.known(x).is_rough:
        return None
    first = TensorType(tuple(shape_of(x)), dtype_of(x))
    rng = random.Random(w.choices.below(_SEEDS))
    for name in rng.sample(_usable(), _OPS):
        for drawn in draw_calls(name, first, 2, rng, _ATTEMPTS)[-1:]:
            others = [_operand(w, ty) for ty in drawn.operands[1:]]
            if _may_trap(drawn, others) or not _has_kernel(drawn) or not stays_inside(drawn):
                return None
            operand = _without_nan(w, x) if tvm.ir.Op.get(name).get_attr("FLegalize") is None else x
            return w.parts(w.emit(drawn.build(w.tame(operand), *others), grows=2))
    return None


def op_of_another_type(w: FunctionWriter, x: Any) -> Any:
    """An op that takes tensors of few types, on elements of the value put together as it takes them."""
    if not is_static(x) or not math.prod(shape_of(x)) or w.known(x).is_rough:
        return None
    drawn = _found_call(w.choices.choice(_usable()), w.choices.below(_CLIMBS))
    if drawn is None or not drawn.operands:
        return None
    first, *rest = drawn.operands
    others = [_operand(w, ty) for ty in rest]
    if _may_trap(drawn, others):
        return None
    return w.parts(w.emit(drawn.build(_arranged(w, x, first), *others), grows=2))


@cache
def _found_call(name: str, seed: int) -> OpCall | None:
    """A call of the op; where few draws find none, the one that many find, or None."""
    return CallSearch(name, random.Random(f"{name} {seed}")).run(_unfit, _STEPS) or _found_late(name)


@cache
def _found_late(name: str) -> OpCall | None:
    return CallSearch(name, random.Random(name)).run(_unfit)


def _unfit(call: OpCall) -> str:
    """Why a call is none for a program; empty if it is."""
    return unusable(call) if not stays_inside(call) else "" if _has_kernel(call) else "no kernel"


def _arranged(w: FunctionWriter, x: Any, ty: TensorType) -> Any:
    """Elements of the value, one after the other and from the start again, small and no NaN, as a tensor of a type."""
    x = _without_nan(w, x)
    if dtype_of(x) != ty.dtype:
        x = x if dtype_of(x) == "bool" else w.emit(R.clip(x, 0 if ty.dtype.startswith("u") else -3, 3), rough=False)
        x = w.emit(R.astype(x, ty.dtype), rough=False)
    shape = [int(extent) for extent in ty.shape]
    places = np.arange(math.prod(shape)) % math.prod(shape_of(x))
    flat = w.emit(R.reshape(w.tame(x, 2), (math.prod(shape_of(x)),)), rough=False)
    return w.emit(R.reshape(w.emit(R.take(flat, relax.const(places), axis=0), rough=False), shape), rough=False)


def _without_nan(w: FunctionWriter, x: Any) -> Any:
    """What is sorted, or added up by a library: NaN has no place in an order."""
    if not dtype_of(x).startswith("float"):
        return x
    return w.emit(R.where(w.emit(R.isnan(x)), relax.const(0, dtype_of(x)), x), rough=False)


def of_sizes(w: FunctionWriter, x: Any) -> Any:
    """What takes no tensor, but sizes; and sizes as numbers."""
    shape, dtype = shape_of(x), dtype_of(x)
    extent = w.choices.choice([e for e in shape if isinstance(e, int) and e] or [3])
    kind = w.choices.below(5)
    if kind == 0:
        return w.emit(w.choices.choice((R.zeros, R.ones))(list(shape), dtype), rough=False)
    if kind == 1:
        return w.emit(R.shape_to_tensor(w.emit(R.shape_of(x)))) if shape else None
    if kind == 2:
        return w.emit(R.eye(extent, w.choices.between(1, 4), w.choices.between(-1, 1), dtype), rough=False)
    if kind == 3:
        return None if dtype == "bool" else w.emit(R.arange(0, extent, w.choices.between(1, 2), dtype), rough=False)
    return w.emit(R.hamming_window(extent, w.choices.chance(50), 0.5, 0.5, "float32"))


def of_unknown_size(w: FunctionWriter, x: Any) -> Any:
    """What has as many elements as the data says; added up, so that the steps that follow have a shape."""
    dtype = dtype_of(x)
    if not is_static(x) or w.known(x).is_rough or not shape_of(x) or 0 in shape_of(x):
        return None
    kind = w.choices.below(3)
    if kind == 0:
        flat = w.emit(R.reshape(x, (math.prod(shape_of(x)),)), rough=False)
        one = relax.const(np.ones(1), dtype)  # of nothing at all, TVM's own sums are what memory held before
        found = R.nonzero(w.emit(R.concat([flat, one]), rough=False))
    elif kind == 1:
        if dtype == "bool":
            return None
        found = R.unique(_without_nan(w, x), sorted=w.choices.chance(50))
    else:
        begin = [w.choices.below(extent) for extent in shape_of(x)]
        steps = [w.choices.between(1, 2) for _ in begin]
        found = R.dynamic_strided_slice(x, *(relax.const(np.array(n), "int64") for n in (begin, shape_of(x), steps)))
    known = w.emit(found, rough=False)
    sizes = [tirx.Var(w.module.fresh("size"), "int64") for _ in range(int(known.ty.ndim))]
    cast = w.builder.match_cast(known, relax.TensorType(sizes, known.ty.dtype))
    numbers = cast if str(known.ty.dtype) != "bool" else w.emit(R.astype(cast, "int32"), rough=False)
    return w.emit(R.max(numbers), rough=False) if w.choices.chance(50) else w.emit(R.sum(numbers), grows=1)


def _may_trap(drawn: OpCall, others: list[Any]) -> bool:
    """An integer is divided by one of the operands: by zero it ends the process, stock TVM's too."""
    first = relax.Var("x", relax.TensorType(list(drawn.operands[0].shape), drawn.operands[0].dtype))
    if all(str(one.ty.dtype).startswith(("float", "bool")) for one in (first, *others)):
        return False
    call = normalized(drawn.build(first, *others))
    return DIVIDES in (call_may_run_at_compile_time(call, tvm.IRModule()) or "")


@cache
def _usable() -> tuple[str, ...]:
    return tuple(name for name in all_ops() if _is_steady(tvm.ir.Op.get(name)))


def _is_steady(op: Any) -> bool:
    """It runs on one machine, and gives the same each time."""
    return not str(op.name).startswith("relax.ccl.") and bool(op.get_attr("FPurity"))


def _has_kernel(drawn: OpCall) -> bool:
    """Whether a kernel is made of it: by its legalisation, by what TVM does with sorts and scans, or by ours."""
    if tvm.ir.Op.get(drawn.name).get_attr("FLegalize") is not None:
        return True
    try:
        with tvm.target.Target("llvm"):
            dispatched = relax.backend.DispatchSortScan()(relax.backend.DispatchSampling()(drawn.module()))
            lowered = legalize(dispatched)
    except REFUSALS:
        return False
    return drawn.name not in ops_in(lowered)


def _operand(w: FunctionWriter, ty: TensorType) -> Any:
    """Integers may be indices: the first element is always there."""
    shape = [int(extent) for extent in ty.shape]
    if ty.dtype.startswith("float") or ty.dtype == "bool":
        return w.constant(shape, ty.dtype)
    return relax.const(np.zeros(shape, ty.dtype), ty.dtype)


SCHEMA_KINDS: dict[Step, int] = {any_op: 4, op_of_another_type: 3, of_sizes: 1, of_unknown_size: 1}
