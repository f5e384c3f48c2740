"""Symbolic sizes that a reshape fuses with others: windows of images (Swin) with a dynamic batch.

Planning raised ``LayoutError: no block can write ..: a symbolic axis is fused with another``, and kernels whose buffers
had ``n * 4`` but nowhere ``n`` could not be built.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from compare import assert_same_fast
from programs import program
from tvm import relax, tirx
from tvm.relax import op

import eqsat_layout

SIDE, WINDOW, CHANNELS = 8, 4, 16


def constant(*shape: int) -> Any:
    return relax.const(np.random.default_rng(0).random(shape, np.float32))


def attention_in_windows(b: Any, x: Any, n: Any, shift: int) -> Any:
    """Rows and columns are rolled by ``shift``, cut into windows, multiplied, and put together again."""
    y = x
    for axis in (1, 2) if shift else ():
        ends = [(shift, SIDE), (0, shift)]
        y = b.emit(op.concat([b.emit(op.strided_slice(y, [axis], [lo], [hi])) for lo, hi in ends], axis=axis))
    count = SIDE // WINDOW
    y = b.emit(op.reshape(y, (n, count, WINDOW, count, WINDOW, CHANNELS)))
    y = b.emit(op.permute_dims(y, [0, 1, 3, 2, 4, 5]))
    y = b.emit(op.reshape(y, (n * count * count, WINDOW * WINDOW, CHANNELS)))
    y = b.emit(op.nn.softmax(b.emit(op.matmul(y, constant(CHANNELS, CHANNELS))), -1))
    y = b.emit(op.reshape(y, (n, count, count, WINDOW, WINDOW, CHANNELS)))
    y = b.emit(op.permute_dims(y, [0, 1, 3, 2, 4, 5]))
    return b.emit(op.add(x, b.emit(op.reshape(y, (n, SIDE, SIDE, CHANNELS)))))


def swin(b: Any, x: Any, n: Any) -> Any:
    y = b.emit(op.nn.conv2d(x, constant(CHANNELS, 3, 4, 4), strides=4))
    y = b.emit(op.permute_dims(y, [0, 2, 3, 1]))
    y = b.emit(op.nn.layer_norm(y, constant(CHANNELS), constant(CHANNELS), axes=[-1]))
    for shift in (0, 2):
        y = attention_in_windows(b, y, n, shift)
    parts = [b.emit(op.strided_slice(y, [1, 2], [i, j], [SIDE, SIDE], [2, 2])) for i in (0, 1) for j in (0, 1)]
    return b.emit(op.mean(b.emit(op.concat(parts, axis=-1)), [1, 2]))


def test_windows_with_a_dynamic_batch_are_planned_and_built() -> None:
    n = tirx.Var("n", "int64")
    mod = program(lambda b, x: swin(b, x, n), (n, 3, 4 * SIDE, 4 * SIDE))
    assert_same_fast(mod, eqsat_layout.optimize(mod, "llvm"), sizes=(1, 3))
    notes: list[str] = []
    eqsat_layout.compile(mod, "llvm", notes=notes)
    assert [note for note in notes if "schedule" in note] == []  # that of shape_func was said to be missing
