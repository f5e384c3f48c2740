"""Norms of each element by its neighbours in other channels (``LRN``).

In: a builder, data of shape (batch, channels, ...), ONNX's numbers. Out: as much data, in Relax.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from eqsat_layout.readers.layers.dtypes import as_dtype


def local_norm(builder: relax.BlockBuilder, x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    """``x / (bias + alpha / size * sum(x^2))^beta``, of ``size`` channels around each, one more behind than before
    where that is even. Narrow floats are computed in float32."""
    op, emit, own = relax.op, builder.emit, str(x.ty.dtype)
    dtype, rank = "float64" if own == "float64" else "float32", len(x.ty.shape)
    channels = x.ty.shape.values[1]
    wide = as_dtype(builder, x, dtype)
    before = (size - 1) // 2
    pads = [0, 0, before, size - 1 - before, *[0] * 2 * (rank - 2)]
    squares = emit(op.nn.pad(emit(op.multiply(wide, wide)), pads))
    total: Any = None
    for first in range(size):
        part = emit(op.strided_slice(squares, [1], [first], [channels + first], assume_inbound=True))
        total = part if total is None else emit(op.add(total, part))
    scale = emit(op.add(emit(op.multiply(total, relax.const(alpha / size, dtype))), relax.const(bias, dtype)))
    return as_dtype(builder, emit(op.divide(wide, emit(op.power(scale, relax.const(beta, dtype))))), own)
