"""Steps of random programs: the families of ops that have no window.

In: the function that is written, and a value. Out: the value or values that the step made, or None where it does not
apply. ``kinds_for`` says which steps there are for a value, and how often each is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.soundness.programs.ops_edges import EDGE_KINDS
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
    kinds = {**ANY_KINDS, **STRUCTURE_KINDS, **SCHEMA_KINDS, **EDGE_KINDS}
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


def fixed_axes(x: Any) -> list[int]:
    """The axes whose extents are numbers."""
    return [a for a, e in enumerate(shape_of(x)) if isinstance(e, int)]


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
    return all(_same(m, n) or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False)) and size_of(b) <= 500


def _same(m: Any, n: Any) -> bool:
    return m == n if isinstance(m, int) and isinstance(n, int) else m is n or str(m) == str(n)


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


def permute(w: FunctionWriter, x: Any) -> Any:
    return w.emit(R.permute_dims(x, w.choices.shuffled(range(len(shape_of(x))))), rough=False)


def divisor(w: FunctionWriter, n: int) -> int:
    """A divisor of ``n``."""
    return w.choices.choice([d for d in range(1, n + 1) if n % d == 0])


def reshape(w: FunctionWriter, x: Any) -> Any:
    """A symbolic first axis stays."""
    shape = list(shape_of(x))
    head = shape[:1] if shape and not isinstance(shape[0], int) else []
    if len(fixed_axes(x)) + len(head) < len(shape):
        return None
    rest, target = math.prod(shape[len(head) :]), list[Any]()
    for _ in range(w.choices.between(0, 4)):
        target.append(divisor(w, rest))
        rest //= target[-1]
    return w.emit(R.reshape(x, [*head, *target, rest] if rest > 1 or not target else [*head, *target]), rough=False)


def layout_transform(w: FunctionWriter, x: Any) -> Any:
    """Every axis split at random, the digits shuffled, and perhaps two neighbours fused."""
    if dtype_of(x) == "bool" or not is_static(x):
        return None
    digits: list[tuple[int, int, int]] = []
    for axis, extent in enumerate(shape_of(x)):
        inner = divisor(w, extent)
        digits += [(axis, inner, extent // inner), (axis, 1, inner)] if 1 < inner < extent else [(axis, 1, extent)]
    if not digits or len(digits) > 6:
        return None
    digits = w.choices.shuffled(digits)
    fused = w.choices.between(1, len(digits) - 1) if len(digits) > 1 and w.choices.chance(40) else 0

    def mapped(*index: Any) -> list[Any]:
        result: list[Any] = []
        for position, (axis, stride, extent) in enumerate(digits):
            value = index[axis] // stride % extent if extent != shape_of(x)[axis] else index[axis]
            if position == fused and fused:
                value = result.pop() * extent + value
            result.append(value)
        return result

    variables = [tirx.Var(f"i{a}", "int64") for a in range(len(shape_of(x)))]
    return w.emit(R.layout_transform(x, tirx.IndexMap(variables, mapped(*variables), None)), rough=False)


def padding_transform(w: FunctionWriter, x: Any) -> Any:
    """A layout whose block does not divide an axis, and what brings it back: padded with a number."""
    fixed = fixed_axes(x)
    if not fixed or not is_static(x) or dtype_of(x) not in ("float32", "int32"):
        return None
    axis, block = w.choices.choice(fixed), w.choices.choice((4, 3, 8))
    rank, extent = len(shape_of(x)), shape_of(x)[axis]
    if extent % block == 0 or rank > 5:
        return None

    def mapped(*index: Any) -> list[Any]:
        outer = [i // block if a == axis else i for a, i in enumerate(index)]
        return [*outer, index[axis] % block]

    variables = [tirx.Var(f"i{a}", "int64") for a in range(rank)]
    value = 0.0 if dtype_of(x) == "float32" else 0
    packed = w.emit(R.layout_transform(x, tirx.IndexMap(variables, mapped(*variables), None), value), rough=False)
    if w.choices.chance(40):
        packed = w.emit(R.nn.relu(packed) if dtype_of(x) == "float32" else R.negative(packed), rough=False)
    back = [*range(axis + 1), rank, *range(axis + 1, rank)]
    joined = [e if a != axis else -(-e // block) * block for a, e in enumerate(shape_of(x))]
    plain = w.emit(R.reshape(w.emit(R.permute_dims(packed, back), rough=False), joined), rough=False)
    return [packed, w.emit(R.strided_slice(plain, [axis], [0], [extent]), rough=False)]


def concat(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    if not fixed_axes(x):
        return None
    if w.choices.chance(25) and len(shape) < 5:
        return w.emit(R.stack([x, x], axis=w.choices.between(0, len(shape))), rough=False)
    axis = w.choices.choice(fixed_axes(x))
    same = [v for v in w.values if len(shape_of(v)) == len(shape) and dtype_of(v) == dtype_of(x)]
    same = [
        v
        for v in same
        if all(_same(m, n) for a, (m, n) in enumerate(zip(shape, shape_of(v), strict=True)) if a != axis)
        and isinstance(shape_of(v)[axis], int)
    ]
    parts = [x, w.choices.choice(same)]
    if is_static(x) and w.choices.chance(30):
        parts.append(w.constant(shape, dtype_of(x)))
    return w.emit(R.concat(w.choices.shuffled(parts), axis=axis), rough=False)


def split(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    axes = [a for a in fixed_axes(x) if shape[a] > 1]
    if not axes:
        return None
    axis = w.choices.choice(axes)
    sections = w.choices.choice([d for d in (2, 3, 4, 6) if shape[axis] % d == 0] or [1])
    where = sections if sections > 1 and w.choices.chance(70) else [w.choices.between(1, shape[axis] - 1)]
    parts = w.emit(R.split(x, where, axis=axis), rough=False)
    count = len(parts.ty.fields)
    if w.choices.chance(20):
        return w.emit(R.concat(parts, axis=w.choices.choice(axes) if isinstance(where, int) else axis), rough=False)
    wanted = sorted({0, count - 1, w.choices.below(count)})
    return [w.emit(relax.TupleGetItem(parts, i)) for i in wanted]


def slicing(w: FunctionWriter, x: Any) -> Any:
    if not fixed_axes(x):
        return None
    axis = w.choices.choice(fixed_axes(x))
    extent = shape_of(x)[axis]
    begin = w.choices.below(extent)
    end = extent - w.choices.below(extent - begin)
    return w.emit(R.strided_slice(x, [axis], [begin], [end], [w.choices.choice((1, 1, 2))]), rough=False)


def gathering(w: FunctionWriter, x: Any) -> Any:
    if not fixed_axes(x):
        return None
    axis = w.choices.choice(fixed_axes(x))
    extent, kind = shape_of(x)[axis], w.choices.below(5)
    if kind == 0:
        return w.emit(R.flip(x, axis), rough=False)
    if kind == 1:
        return w.emit(R.repeat(x, 2, axis), rough=False)
    if kind == 2:
        index = np.array([w.choices.below(extent) for _ in range(3)], "int64")
        return w.emit(R.take(x, relax.const(index), axis=axis), rough=False)
    if kind == 3:
        return w.emit(R.tile(x, [2 if a == axis else 1 for a in range(len(shape_of(x)))]), rough=False)
    if not is_static(x):
        return None
    index = np.random.default_rng(w.choices.below(9)).integers(0, extent, shape_of(x))
    return w.emit(R.gather_elements(x, relax.const(index.astype("int64")), axis=axis), rough=False)


def shaping(w: FunctionWriter, x: Any) -> Any:
    shape = shape_of(x)
    units = [a for a, e in enumerate(shape) if isinstance(e, int) and e == 1]
    if units and w.choices.chance(50):
        if w.choices.chance(50):
            return w.emit(R.squeeze(x, [w.choices.choice(units)]), rough=False)
        wide = [w.choices.choice((1, 2, 3)) if a in units else e for a, e in enumerate(shape)]
        return w.emit(R.broadcast_to(x, wide), rough=False)
    if len(shape) > 1 and w.choices.chance(15) and is_static(x) and dtype_of(x) != "bool":
        return w.emit(w.choices.choice((R.tril, R.triu))(x), rough=False)
    if len(shape) < 5:
        return w.emit(R.expand_dims(x, w.choices.between(0, len(shape))), rough=False)
    return None


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
