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
    """The number 0, a constant without axes, with one: else TVM takes what is multiplied with it for 0, infinities and
    NaN too. What is made of a ``factor`` without axes has one then, which :func:`without_one` takes off."""
    if not isinstance(value, ir.GenericConst) or value.value.shape or getattr(factor.ty, "ndim", -1) < 0:
        return value
    number, dtype = value.value.numpy(), str(value.ty.dtype)
    return relax.const(number.reshape(1), dtype) if "float" in dtype and number == 0 else value


def without_one(builder: relax.BlockBuilder, made: Any, *factors: Any) -> Any:
    """``made``, of no axes where none of the factors has any."""
    if any(not isinstance(one.ty, relax.TensorType) or one.ty.ndim for one in factors):
        return made
    made = builder.normalize(made)
    return builder.emit(relax.op.reshape(builder.emit(made), [])) if made.ty.ndim else made
