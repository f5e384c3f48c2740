"""Numbers and sizes as tensors.

In: an operand as torch has it: a tensor, a number, or a size that only a run tells. Out: a tensor of the type that is
asked for.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from eqsat_layout.readers.layers.dtypes import as_dtype, number_of_type


def of_type(builder: relax.BlockBuilder, value: Any, dtype: str) -> Any:
    if not isinstance(value, relax.Expr):
        return number_of_type(value, dtype)
    if not is_tensor(value):
        return value if dtype == str(value.ty) else of_type(builder, of_size(builder, value), dtype)
    return as_dtype(builder, value, dtype)


def is_tensor(value: Any) -> bool:
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)


def of_size(b: relax.BlockBuilder, size: Any) -> Any:
    """As a tensor of one number."""
    return b.emit(relax.op.reshape(b.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))), ()))
