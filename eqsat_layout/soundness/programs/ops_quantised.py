"""Steps of random programs: convolutions and products of matrices of what bytes stand for.

In: the function that is written, and a value. Out: what ``ops.py`` says of steps. Bytes are quantised here, or were
bytes before; their scale and zero are known, or worked out where the program runs; weights are constant bytes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.relax import op as R

from eqsat_layout.soundness.programs.writer import FunctionWriter, Step, dtype_of, is_static, shape_of

_DTYPES: Final = ("float32", "float16", "uint8", "int8")
_WORD: Final = 4
"""Bytes that are multiplied at once."""
_BYTES: Final = {"uint8": (0, 255), "int8": (-128, 127)}
_SCALES: Final = (0.05, 0.02, 0.5, 1.0)
_LARGEST: Final = 2_000
"""Elements of weights."""
_CONVOLUTIONS: Final = {3: (R.nn.conv1d, "W"), 4: (R.nn.conv2d, "HW"), 5: (R.nn.conv3d, "DHW")}


def quantised(w: FunctionWriter, x: Any) -> Any:
    """A product of what bytes stand for with weights that bytes stand for."""
    x = x if _may_be_bytes(w, x) else next(filter(partial(_may_be_bytes, w), w.values), x)
    shape = shape_of(x)
    if not _may_be_bytes(w, x):
        return None
    data = _stood_for(w, x)
    made = _convolution(w, data, shape) if len(shape) in _CONVOLUTIONS and w.choices.chance(60) else None
    if made is not None:
        return made
    whole = [axis for axis, extent in enumerate(shape) if isinstance(extent, int) and extent % _WORD == 0]
    if shape[-1] % _WORD and whole and w.choices.chance(70):  # along an axis that fills words of bytes
        data = w.emit(R.permute_dims(data, [*(a for a in range(len(shape)) if a != whole[0]), whole[0]]), rough=False)
    width = w.choices.choice((4, 1, 3, 8, 16))
    weights = _weights(w, (shape_of(data)[-1], width), 1)
    return w.emit(R.matmul(data, weights), grows=2)


def _may_be_bytes(w: FunctionWriter, x: Any) -> bool:
    """Exact, as one step of quantisation is no rounding, and of sizes that are known but for the first."""
    shape = shape_of(x)
    known = len(shape) > 1 and all(isinstance(e, int) and e for e in shape[1:]) and shape[0] != 0
    return known and dtype_of(x) in _DTYPES and not w.known(x).is_rough


def _stood_for(w: FunctionWriter, x: Any) -> Any:
    """Floats that are bytes less a zero, times a scale."""
    choices, dtype = w.choices, dtype_of(x)
    scale = relax.const(np.float32(choices.choice(_SCALES)))
    if dtype not in _BYTES:
        dtype = choices.choice(tuple(_BYTES))
        finite = w.emit(R.where(w.emit(R.isnan(x)), relax.const(0, dtype_of(x)), x), rough=False)
        inside = w.emit(R.clip(finite, -50, 50), rough=False)
        wide = inside if dtype_of(x) == "float32" else w.emit(R.astype(inside, "float32"), rough=False)
        zero: Any = _zero(w, dtype)
        x = w.emit(R.quantize(wide, scale, zero, axis=0, out_dtype=dtype))
    else:
        zero = _zero(w, dtype)
    is_other = False
    if is_static(x) and choices.chance(50):  # known only where the program runs, and perhaps no such byte
        is_other = choices.chance(30)
        source = w.emit(R.astype(x, choices.choice(tuple(_BYTES))), rough=False) if is_other else x
        zero = w.emit(choices.choice((R.max, R.min))(source))
    if not is_other and choices.chance(50):
        return w.emit(R.dequantize(x, scale, zero, axis=0, out_dtype="float32"))
    number, own = (w.emit(R.astype(one, "float32"), rough=False) for one in (x, zero))
    return w.emit(R.multiply(w.emit(R.subtract(number, own), rough=False), scale))


def _zero(w: FunctionWriter, dtype: str) -> Any:
    low, high = _BYTES[dtype]
    return relax.const(np.array(w.choices.choice((low, 0, high, 3)), dtype), dtype)


def _weights(w: FunctionWriter, shape: tuple[int, ...], outputs: int) -> Any:
    """Constant bytes, dequantised; with one scale, or one for each place of the axis ``outputs``."""
    choices = w.choices
    dtype = choices.choice(("int8", "int8", "uint8"))
    low, high = _BYTES[dtype]
    rng = np.random.default_rng(choices.below(100))
    values = rng.integers(low, high + 1, shape).astype(dtype)
    if choices.chance(15):
        values[...] = choices.choice((low, high))
    middle = (low + high + 1) // 2  # numbers less this are signed bytes, which products of bytes ask for
    zeros: Any = np.array(choices.choice((middle, middle, middle, 1, low, high)), dtype)
    scales: Any = np.float32(choices.choice(_SCALES[:2]))
    axis = choices.below(len(shape)) if choices.chance(15) else outputs
    if choices.chance(50):
        scales, zeros = rng.uniform(0.01, 0.05, shape[axis]).astype("float32"), np.full(shape[axis], zeros)
    operands = (relax.const(one) for one in (values, scales, zeros))
    return w.emit(R.dequantize(*operands, axis=axis, out_dtype="float32"))


def _convolution(w: FunctionWriter, x: Any, shape: tuple[Any, ...]) -> Any:
    choices, (op, axes) = w.choices, _CONVOLUTIONS[len(shape)]
    is_last = choices.chance(40)
    channels, sizes = (shape[-1], shape[1:-1]) if is_last else (shape[1], shape[2:])
    groups = choices.choice([1, 1, 1, *(d for d in (2, 3, 4, channels) if channels % d == 0)])
    out = groups * choices.choice((1, 2, 3, 4, 8))
    window = [choices.choice((1, 3, 2)) for _ in axes]
    padding = [choices.choice((0, 1, 2)) for _ in range(2 * len(axes))]
    dilation = [choices.choice((1, 1, 2)) for _ in axes]
    padded = (e + a + b for e, a, b in zip(sizes, padding, padding[len(axes) :], strict=False))
    fits = all(e > (k - 1) * d for e, k, d in zip(padded, window, dilation, strict=True))
    if not fits or out * (channels // groups) * int(np.prod(window)) > _LARGEST:
        return None
    own = (*window, channels // groups, out) if is_last else (out, channels // groups, *window)
    layouts = {"data_layout": f"N{axes}C", "kernel_layout": f"{axes}IO"} if is_last else {}
    made = op(
        x,
        _weights(w, own, len(own) - 1 if is_last else 0),
        strides=[choices.choice((1, 1, 2)) for _ in axes],
        padding=padding,
        dilation=dilation,
        groups=groups,
        **layouts,
    )
    return w.emit(made, grows=2)


BYTE_KINDS: dict[Step, int] = {quantised: 8}
