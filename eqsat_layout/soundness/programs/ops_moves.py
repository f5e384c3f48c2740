"""Ops that move elements or choose among them, of random programs.

In: a writer and a tensor. Out: a tensor, as the writer's choices say.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.soundness.programs.writer import FunctionWriter, dtype_of, is_static, shape_of


def fixed_axes(x: Any) -> list[int]:
    """The axes whose extents are numbers."""
    return [a for a, e in enumerate(shape_of(x)) if isinstance(e, int)]


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
        if all(is_same_extent(m, n) for a, (m, n) in enumerate(zip(shape, shape_of(v), strict=True)) if a != axis)
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


def is_same_extent(m: Any, n: Any) -> bool:
    return m == n if isinstance(m, int) and isinstance(n, int) else m is n or str(m) == str(n)
