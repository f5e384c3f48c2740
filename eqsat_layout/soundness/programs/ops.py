"""Steps of random programs: the families of ops that have no window.

In: the function that is written, and a value. Out: the value or values that the step made, or None where it does not
apply. ``kinds_for`` says which steps there are for a value, and how often each is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax import op as R

from eqsat_layout.soundness.programs.ops_edges import EDGE_KINDS
from eqsat_layout.soundness.programs.ops_kernels import KERNEL_KINDS
from eqsat_layout.soundness.programs.ops_moves import (
    concat,
    fixed_axes,
    gathering,
    is_same_extent,
    layout_transform,
    padding_transform,
    permute,
    reshape,
    shaping,
    slicing,
    split,
)
from eqsat_layout.soundness.programs.ops_nn import NETWORK_KINDS
from eqsat_layout.soundness.programs.ops_quantised import BYTE_KINDS
from eqsat_layout.soundness.programs.ops_schema import SCHEMA_KINDS
from eqsat_layout.soundness.programs.ops_structure import LAYER_KINDS, STRUCTURE_KINDS, SYMBOLIC_KINDS, call
from eqsat_layout.soundness.programs.ops_tir import TIR_KINDS
from eqsat_layout.soundness.programs.writer import (
    FunctionWriter,
    Step,
    dtype_of,
    is_static,
    shape_of,
    size_of,
)


def kinds_for(w: FunctionWriter, x: Any) -> dict[Step, int]:
    """The steps that ``x`` may be taken through, with their weights; the first is the simplest."""
    if 0 in shape_of(x):
        return EMPTY_KINDS
    kinds = {**ANY_KINDS, **STRUCTURE_KINDS, **SCHEMA_KINDS, **EDGE_KINDS, **KERNEL_KINDS}
    if dtype_of(x).startswith("float"):
        kinds |= FLOAT_KINDS
    if not is_static(x):
        kinds |= SYMBOLIC_KINDS
    if dtype_of(x) == "float32" and is_static(x):
        kinds |= TIR_KINDS | LAYER_KINDS
    if dtype_of(x) in ("float32", "float16"):
        kinds |= NETWORK_KINDS
    if dtype_of(x) in ("float32", "float16", "uint8", "int8"):
        kinds |= BYTE_KINDS
    return kinds if w.depth < 2 else {k: n for k, n in kinds.items() if k is not call}


def unary(w: FunctionWriter, x: Any) -> Any:
    dtype = dtype_of(x)
    if dtype == "bool":
        return w.emit(R.logical_not(x))
    exact = w.choices.choice((R.abs, R.negative))
    if not dtype.startswith("float"):
        return w.emit(exact(x))
    ops = (R.nn.relu, R.tanh, R.sigmoid, R.nn.gelu, R.nn.silu, R.nn.leakyrelu, R.erf, R.nn.relu6, R.nn.softplus)
    number = w.choices.below(len(ops) + 1)
    if number == len(ops):
        return w.emit(exact(x), rough=False)
    return w.emit(ops[number](x), rough=number > 0)


def bounded(w: FunctionWriter, x: Any) -> Any:
    """Functions that are not defined, or grow fast, outside of some range."""
    op = w.choices.choice((R.exp, R.sqrt, R.rsqrt, R.log, R.cos))
    if op in (R.sqrt, R.rsqrt, R.log):
        positive = w.emit(R.add(w.emit(R.abs(x), rough=False), relax.const(0.5, dtype_of(x))))
        return w.emit(op(positive))
    return w.emit(op(w.emit(R.clip(x, -3, 3), rough=False)), grows=1)


def stepped(w: FunctionWriter, x: Any) -> Any:
    """Functions with steps, of values that are exact."""
    if w.known(x).is_rough:
        return None
    return w.emit(w.choices.choice((R.floor, R.ceil, R.sign, R.round))(x), rough=False)


def binary(w: FunctionWriter, x: Any) -> Any:
    dtype = dtype_of(x)
    if dtype == "bool":
        op = w.choices.choice((R.logical_and, R.logical_or, R.logical_xor))
        return w.emit(op(*w.choices.shuffled([x, partner(w, x)])))
    op = w.choices.weighted({R.add: 4, R.multiply: 2, R.subtract: 2, R.maximum: 2, R.minimum: 1, R.divide: 1})
    if op is R.divide:
        if not dtype.startswith("float"):
            return None
        divisor = w.emit(R.add(w.emit(R.abs(partner(w, x)), rough=False), relax.const(0.5, dtype)))
        return w.emit(op(x, divisor), grows=1)
    if op is R.multiply:
        x = w.tame(x)
    other = partner(w, x)
    if op is R.multiply:
        other = w.tame(other)
    exact = op in (R.maximum, R.minimum)
    both = w.choices.shuffled([x, other])
    return w.emit(op(*both), grows=int(op is R.multiply), rough=False if exact else None)


def partner(w: FunctionWriter, x: Any) -> Any:
    """A value or constant that broadcasts against ``x``, of its type."""
    shape = shape_of(x)
    fitting = [v for v in w.values if dtype_of(v) == dtype_of(x) and broadcasts(shape, shape_of(v))]
    if fitting and w.choices.chance(60):
        return fitting[-1 - w.choices.below(len(fitting))]
    tail = shape[w.choices.between(0, len(shape)) :]
    small = tuple(1 if not isinstance(e, int) or w.choices.chance(40) else e for e in tail)
    return w.constant(small, dtype_of(x))


def broadcasts(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether tensors of these shapes go together."""
    return (
        all(is_same_extent(m, n) or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False)) and size_of(b) <= 500
    )


def compare(w: FunctionWriter, x: Any) -> Any:
    """A comparison, and perhaps a choice between two values by it."""
    if dtype_of(x) == "bool" or w.known(x).is_rough:
        return None
    other = partner(w, x)
    if w.known(other).is_rough:
        return None
    flags = w.emit(w.choices.choice((R.greater, R.less_equal, R.equal, R.not_equal))(x, other))
    if not w.choices.chance(60):
        return flags
    third = partner(w, x)
    third = third if broadcasts(shape_of(flags), shape_of(third)) else other
    return w.emit(R.where(flags, x, third), rough=False)


def select(w: FunctionWriter, x: Any) -> Any:
    """``where`` with flags that are a value, or a constant."""
    flags = [v for v in w.values if dtype_of(v) == "bool" and broadcasts(shape_of(x), shape_of(v))]
    shape = tuple(e if isinstance(e, int) else 1 for e in shape_of(x))
    flag = w.choices.choice(flags) if flags and w.choices.chance(70) else w.constant(shape, "bool")
    other = partner(w, x)
    if not broadcasts(shape_of(flag), shape_of(other)):
        other = x
    return w.emit(R.where(flag, x, other), rough=False)


def cast(w: FunctionWriter, x: Any) -> Any:
    dtype = w.choices.choice(("float32", "float16", "int32", "int8", "uint8", "int64", "float64", "bool"))
    if dtype == dtype_of(x):
        return None
    if dtype_of(x).startswith("float") and not dtype.startswith("float"):
        if w.known(x).is_rough:
            return None
        x = w.emit(R.clip(x, 0 if dtype.startswith("u") else -100, 100), rough=False)
    if dtype == "bool" and dtype_of(x) != "bool":
        return w.emit(R.not_equal(x, relax.const(0, dtype_of(x))))
    if dtype == "float16":
        x = x if dtype_of(x) == "bool" else w.emit(R.clip(x, -8, 8), rough=False)
    return w.emit(R.astype(x, dtype), rough=w.known(x).is_rough or dtype == "float16")


def reduction(w: FunctionWriter, x: Any) -> Any:
    dtype, rank = dtype_of(x), len(shape_of(x))
    if not rank or dtype == "bool":
        return None
    axes = w.choices.some(fixed_axes(x), 40) or fixed_axes(x)[-1:]
    keepdims = w.choices.chance(50)
    op = w.choices.weighted({R.sum: 4, R.max: 3, R.min: 1, R.mean: 2, R.variance: 1, R.std: 1, R.prod: 1})
    if op in (R.mean, R.variance, R.std) and not dtype.startswith("float"):
        op = R.sum
    if not axes or (op is R.prod and math.prod(shape_of(x)[a] for a in axes) > 4):
        return None
    exact = op in (R.max, R.min)
    if op is R.std:  # a root is steep at 0
        op = R.variance
    x = x if exact else w.tame(x)
    return w.emit(op(x, axis=axes, keepdims=keepdims), grows=0 if exact else 1, rough=False if exact else None)


def arg_reduction(w: FunctionWriter, x: Any) -> Any:
    if not fixed_axes(x) or dtype_of(x) == "bool" or w.known(x).is_rough:
        return None
    op, axis = w.choices.choice((R.argmax, R.argmin)), w.choices.choice(fixed_axes(x))
    return w.emit(R.astype(w.emit(op(x, axis=axis, keepdims=w.choices.chance(50))), "int32"))


def cumsum(w: FunctionWriter, x: Any) -> Any:
    if not fixed_axes(x) or dtype_of(x) in ("bool", "int8", "float16"):
        return None
    return w.emit(R.cumsum(w.tame(x), axis=w.choices.choice(fixed_axes(x)), exclusive=w.choices.chance(20)), grows=1)


def loose_constant(w: FunctionWriter, x: Any) -> Any:
    if not is_static(x):
        return None
    if w.choices.chance(30):
        return w.emit(R.full(list(shape_of(x)), relax.const(1, dtype_of(x)), dtype_of(x)), rough=False)
    return permute(w, w.constant(shape_of(x), dtype_of(x)))


def back_and_forth(w: FunctionWriter, x: Any) -> Any:
    """What layout optimisation is about: a permutation, something between, and the way back."""
    order = w.choices.shuffled(range(len(shape_of(x))))
    y = w.emit(R.permute_dims(x, order), rough=False)
    y = binary(w, y) if w.choices.chance(50) else unary(w, y)
    if y is None or len(shape_of(y)) != len(order):
        return y
    inverse = [order.index(a) for a in range(len(order))]
    return w.emit(R.permute_dims(y, inverse), rough=False)


EMPTY_KINDS: dict[Step, int] = {unary: 3, binary: 3, permute: 3, select: 1}
ANY_KINDS: dict[Step, int] = {
    unary: 3, back_and_forth: 4, binary: 5, permute: 5, reshape: 4, layout_transform: 4, padding_transform: 1,
    reduction: 3, concat: 2, split: 2, slicing: 1, gathering: 1, shaping: 1, compare: 1, select: 1, cast: 1,
    arg_reduction: 1, cumsum: 1, loose_constant: 1,
}  # fmt: skip
FLOAT_KINDS: dict[Step, int] = {bounded: 1, stepped: 1}
