"""Units with a slope below 0 (``LeakyRelu``). In: a builder, data, the slope. Out: the result, in Relax."""

from __future__ import annotations

from typing import Any

from tvm import relax

from eqsat_layout.readers.layers.dtypes import without_one, zero_kept


def leaky_unit(builder: relax.BlockBuilder, x: Any, slope: float = 0.01) -> Any:
    """Where the slope is 0, NaN of -inf."""
    if slope:
        return builder.emit(relax.op.nn.leakyrelu(x, slope))
    zero = relax.const(slope, str(x.ty.dtype))  # 0.0 or -0.0
    below = without_one(builder, builder.emit(relax.op.multiply(x, zero_kept(zero, x))), x)
    return builder.emit(relax.op.where(builder.emit(relax.op.greater(x, zero)), x, below))
