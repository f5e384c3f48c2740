"""Values of another type. In: a builder, a tensor of Relax, the name of a type. Out: the tensor in that type."""

from __future__ import annotations

from typing import Any

from tvm import relax


def as_dtype(builder: relax.BlockBuilder, value: Any, dtype: str) -> Any:
    """``value`` itself where it is of that type."""
    value = builder.normalize(value)
    return value if str(value.ty.dtype) == dtype else builder.emit(relax.op.astype(value, dtype))
