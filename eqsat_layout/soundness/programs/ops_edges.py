"""Steps of random programs: what lies at the edges, of tensors and of integers.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps. Borders are put around a tensor and
taken away again, not always the same ones; integers go beyond the ends of their type, where they wrap around.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.soundness.programs.writer import LARGEST, FunctionWriter, Step, dtype_of, is_static, shape_of

_FILLS: Final = (0.0, 0.0, 1.5, 1.0, -3.0)
_INTEGERS: Final = ("int32", "int64", "int32", "int64", "int8", "uint8")
_SMALL: Final = 100
_GROWTH: Final = 4
"""Such numbers are squashed before they are multiplied, or may be indices."""


def borders(w: FunctionWriter, x: Any) -> Any:
    """A tensor padded, and a window as large as it was cut out: where it was, or elsewhere; and padded once more."""
    choices, shape = w.choices, shape_of(x)
    if not shape or not is_static(x) or dtype_of(x) == "bool" or not math.prod(shape):
        return None
    padded = sorted({choices.below(len(shape)) for _ in range(2)})
    widths = [0] * 2 * len(shape)
    for axis in padded:
        widths[2 * axis : 2 * axis + 2] = choices.below(3), choices.below(3)
    if math.prod(e + lo + hi for e, lo, hi in zip(shape, widths[::2], widths[1::2], strict=True)) > LARGEST:
        return None
    y = _pad(w, x, widths)
    if choices.chance(30):
        y = _pointwise(w, y)
    begin = {axis: widths[2 * axis] for axis in padded}
    if choices.chance(60):
        begin = {axis: choices.below(widths[2 * axis] + widths[2 * axis + 1] + 1) for axis in padded}
    ends = [start + shape[axis] for axis, start in begin.items()]
    z = w.emit(R.strided_slice(y, list(begin), list(begin.values()), ends), rough=False)
    return [y, z, _pad(w, z, widths)] if choices.chance(40) else [y, z]


def _pad(w: FunctionWriter, x: Any, widths: list[int]) -> Any:
    fill = w.choices.choice(_FILLS)
    if not dtype_of(x).startswith("float"):
        fill = abs(math.trunc(fill))
    return w.emit(R.nn.pad(x, widths, pad_value=fill), rough=False)


def _pointwise(w: FunctionWriter, x: Any) -> Any:
    if not dtype_of(x).startswith("float"):
        return w.emit(R.add(x, relax.const(1, dtype_of(x))))
    return w.emit(w.choices.choice((R.nn.relu, R.negative, R.abs))(x), rough=False)


def wrapping(w: FunctionWriter, x: Any) -> Any:
    """Integers that wrap around, and what tells that they do: comparison with what they were, and division."""
    choices = w.choices
    if dtype_of(x) == "bool" or w.known(x).is_rough:
        return None
    if not dtype_of(x).startswith(("int", "uint")):
        dtype = choices.choice(_INTEGERS)
        finite = w.emit(R.where(w.emit(R.isnan(x)), relax.const(0, dtype_of(x)), x), rough=False)
        inside = w.emit(R.clip(finite, 0 if dtype.startswith("u") else -_SMALL, _SMALL), rough=False)
        x = w.emit(R.astype(inside, dtype))
    dtype = dtype_of(x)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    kind = choices.below(3)
    if kind == 0:
        factor = relax.const(choices.choice((high, high // 2, 2)), dtype)
        y = w.emit(R.multiply(x, factor), grows=_GROWTH)
        other: Any = factor
        questions: tuple[Any, ...] = (R.floor_divide, R.floor_divide, R.greater, R.equal)
    else:
        op, end = choices.choice(((R.add, high), (R.add, high), (R.subtract, low), (R.subtract, high // 2)))
        near = end - choices.choice((0, 1, 2, 5)) if end != low else low
        y = w.emit(op(x, relax.const(near, dtype)), grows=_GROWTH)
        other, questions = x, (R.greater, R.maximum, R.less_equal, R.minimum)
        if kind == 2:
            other, questions = relax.const(choices.between(1, 5), dtype), (R.greater, R.less_equal, R.floor_divide)
    asked = choices.choice(questions)
    answer = w.emit(asked(y, other))
    return answer if choices.chance(70) else [y, answer]  # what nobody else reads is in one kernel with the answer


def joined(w: FunctionWriter, x: Any) -> Any:
    """What arithmetic that knows no NaN, no wrap-around and no negative numbers makes other ops of, put together."""
    choices, dtype = w.choices, dtype_of(x)
    if dtype == "bool" or w.known(x).is_rough:
        return None
    if dtype.startswith("float"):
        y = w.emit(choices.choice((R.negative, R.abs, R.nn.relu))(x), rough=False)
        flags = w.emit(choices.choice((R.less, R.greater_equal, R.equal))(*choices.shuffled([x, y])))
        if choices.chance(60):
            flags = w.emit(R.logical_not(flags))
        return flags if choices.chance(50) else w.emit(R.where(flags, x, y), rough=False)
    if choices.chance(50):
        return wrapping(w, x)
    divisor: Any = relax.const(choices.between(2, 7), dtype)
    if choices.chance(50):  # one from memory, which is not 0
        divisor = w.emit(R.add(w.emit(R.multiply(x, relax.const(2, dtype)), grows=1), relax.const(1, dtype)))
    if not dtype.startswith("uint") and choices.chance(50):
        divisor = w.emit(R.negative(divisor))
    below = w.emit(R.subtract(x, relax.const(choices.between(1, 20), dtype)), grows=_GROWTH)
    return w.emit(choices.choice((R.floor_divide, R.floor_mod))(below, divisor), grows=_GROWTH)


EDGE_KINDS: dict[Step, int] = {borders: 2, wrapping: 4, joined: 0}
