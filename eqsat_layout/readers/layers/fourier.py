"""Fourier transforms of ONNX as products with constant matrices: DFT and STFT.

In: a node's inputs and attributes. Out: its result, in Relax; the last axis holds real and imaginary parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from eqsat_layout.errors import EqsatError

_LARGEST = 1 << 24
"""Elements of a matrix: longer transforms want another algorithm."""


def fourier_transform(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``DFT``."""
    data, length = inputs[0], _number(inputs[1], "a length")
    axis = int(attributes["axis"]) if "axis" in attributes else _number(inputs[2], "an axis")
    axis = -2 if axis is None else axis
    flags = bool(attributes.get("inverse")), bool(attributes.get("onesided"))
    return _along(builder, data, axis % len(data.ty.shape), length, *flags)


def short_time_fourier_transform(builder: relax.BlockBuilder, inputs: Any, attributes: dict[str, Any]) -> Any:
    """``STFT``."""
    data, window = inputs[0], inputs[2]
    step = _number(inputs[1], "a step") or 1
    size = _number(inputs[3], "a length")
    if size is None:
        size = _extent(window, 0)
    emit = builder.emit
    if len(data.ty.shape) == 2:
        data = emit(relax.op.expand_dims(data, -1))
    batch, length, parts = data.ty.shape.values
    if isinstance(length, tirx.IntImm) and int(length) < size:
        raise EqsatError(f"a window of {size} elements is longer than its signal of {int(length)}")
    frames = builder.emit_te(
        lambda x: te.compute(
            (batch, (length - size) // step + 1, size, parts), lambda b, i, k, part: x[b, i * step + k, part], "frames"
        ),
        data,
        primfunc_name_hint="frames",
    )
    if window is not None:
        frames = emit(relax.op.multiply(frames, emit(relax.op.expand_dims(window, -1))))
    return _along(builder, frames, 2, None, False, bool(attributes.get("onesided", 1)))


def _along(builder: relax.BlockBuilder, data: Any, axis: int, length: int | None, inverse: bool, onesided: bool) -> Any:
    shape, rank, dtype = list(data.ty.shape.values), len(data.ty.shape), str(data.ty.dtype)
    parts, given = _extent(data, rank - 1), _extent(data, axis)
    count = length or (2 * (given - 1) if inverse and onesided else given)
    if given * parts * count * 2 > _LARGEST:
        raise EqsatError(f"a Fourier transform of {count} elements is not done")
    matrix = _matrix(count, given, parts, inverse, onesided)
    order = [*(one for one in range(rank - 1) if one != axis), axis, rank - 1]
    others = [shape[one] for one in order[:-2]]
    emit, flat = builder.emit, matrix.reshape(given * parts, -1).astype(dtype)
    rows = emit(relax.op.reshape(emit(relax.op.permute_dims(data, order)), [*others, given * parts]))
    made = emit(relax.op.matmul(rows, relax.const(flat, dtype)))
    made = emit(relax.op.reshape(made, [*others, *matrix.shape[2:]]))
    return emit(relax.op.permute_dims(made, [order.index(one) for one in range(rank)]))


def _matrix(count: int, given: int, parts: int, inverse: bool, onesided: bool) -> np.ndarray[Any, Any]:
    """Of element and part of what is given, and frequency and part of the result. ``count``: the length of the
    transform; what is longer is cut, what is shorter has zeros behind it."""
    used = np.arange(given)
    results = np.arange(count // 2 + 1 if onesided and not inverse else count)
    turns = np.outer(used, results) % count / count * 2 * np.pi
    cosines, sines = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    real = np.stack([cosines, sines], -1)
    imaginary = np.stack([-sines, cosines], -1)
    matrix = np.stack([real, imaginary][:parts], 1)
    if inverse and onesided:  # the other half is the conjugate of this one
        twice = np.where((used == 0) | (2 * used == count), 1.0, 2.0)
        is_there = used <= count // 2
        return np.asarray((matrix * (twice * is_there)[:, None, None, None])[..., :1] / count)
    matrix *= (used < count)[:, None, None, None]
    return np.asarray(matrix / count if inverse else matrix)


def _number(value: Any, what: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, ir.GenericConst):
        raise EqsatError(f"{what} that is known at run time only is not done")
    return int(value.value.numpy().reshape(-1)[0])


def _extent(value: Any, axis: int) -> int:
    extent = value.ty.shape.values[axis]
    if not isinstance(extent, tirx.IntImm):
        raise EqsatError("a Fourier transform of unknown length is not done")
    return int(extent)
