"""Values of another type. In: a builder, a tensor of Relax or a number, a type's name. Out: it in that type."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax


def as_dtype(builder: relax.BlockBuilder, value: Any, dtype: str) -> Any:
    """``value`` itself where it is of that type."""
    value = builder.normalize(value)
    return value if str(value.ty.dtype) == dtype else builder.emit(relax.op.astype(value, dtype))


def number_of_type(value: Any, dtype: str) -> Any:
    """``value`` as a tensor without axes. Whole ones that the type does not hold wrap around, as in torch."""
    if isinstance(value, int) and "int" in dtype:
        value = np.array(value % 2**64, "uint64").astype(dtype).item()
    return relax.const(value, dtype)


def zero_kept(value: Any, factor: Any) -> Any:
    """The number 0, a constant without axes, with one where ``factor`` has any: else TVM takes what is multiplied with
    it for 0, infinities and NaN too."""
    is_number = isinstance(value, ir.GenericConst) and not value.value.numpy().shape
    if not is_number or not len(factor.ty.shape) or "float" not in str(value.ty.dtype) or value.value.numpy() != 0:
        return value
    return relax.const(value.value.numpy().reshape(1), str(value.ty.dtype))
