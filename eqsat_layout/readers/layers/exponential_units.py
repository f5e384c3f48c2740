"""Units that are exponential below 0 (``Elu``, ``Selu``).

In: a builder, data. Out: the result, in Relax, NaN of NaN: TVM's importers take both parts by ``relu``, which gives 0.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from eqsat_layout.readers.layers.dtypes import as_dtype


def exponential_unit(builder: relax.BlockBuilder, x: Any, alpha: float = 1.0, scale: float = 1.0) -> Any:
    """``scale * (x if x > 0 else alpha * (exp(x) - 1))``, of narrow floats in float32."""
    op, own = relax.op, str(x.ty.dtype)
    dtype = "float64" if own == "float64" else "float32"
    x = as_dtype(builder, x, dtype)

    def times(value: Any, factor: float) -> Any:
        return value if factor == 1.0 else builder.emit(op.multiply(value, relax.const(factor, dtype)))

    below = builder.emit(op.subtract(builder.emit(op.exp(x)), relax.const(1, dtype)))
    is_above = builder.emit(op.greater(x, relax.const(0, dtype)))
    made = builder.emit(op.where(is_above, times(x, scale), times(below, scale * alpha)))
    return as_dtype(builder, made, own)
