"""Resizes by a scale that gives no whole number of elements, for frontends whose resizes go by sizes only.

In: data and the scale of each axis. Out: longer data, of which a scale makes whole numbers, and how much of the result
counts. Places of the result depend on the scale alone, and the last element is what lies beyond the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError

LARGEST_PART: Final = 256
"""The data is made longer to a multiple of at most this."""


def with_ends_repeated(builder: relax.BlockBuilder, data: Any, scales: Sequence[float]) -> tuple[Any, dict[int, Any]]:
    """``data`` with its last elements repeated, and the extents of the result by axis, of those that this changes."""
    ends: dict[int, Any] = {}
    for axis, (extent, scale) in enumerate(zip(list(data.ty.shape), scales, strict=True)):
        ratio = Fraction(scale).limit_denominator(LARGEST_PART)
        is_exact = np.float32(ratio) == np.float32(scale)
        if is_exact and (ratio.denominator == 1 or _is_multiple(extent, ratio.denominator)):
            continue
        if not is_exact:
            raise EqsatError(f"a resize of {extent} elements by {scale:g}, which gives no whole number, is not done")
        whole = tirx.ceildiv(extent, ratio.denominator) * ratio.denominator
        indices = builder.emit(relax.op.arange(0, whole, 1, "int64"))
        last = builder.emit(relax.op.shape_to_tensor(builder.emit(relax.ShapeExpr([extent - 1]))))
        data = builder.emit(relax.op.take(data, builder.emit(relax.op.minimum(indices, last)), axis=axis))
        ends[axis] = tirx.floordiv(extent * ratio.numerator, ratio.denominator)
    return data, ends


def _is_multiple(extent: Any, number: int) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) % number == 0


def cropped(builder: relax.BlockBuilder, made: Any, ends: dict[int, Any]) -> Any:
    """What counts of the result."""
    if not ends:
        return made
    made = builder.emit(builder.normalize(made))
    return relax.op.strided_slice(made, list(ends), [0] * len(ends), list(ends.values()), assume_inbound=True)
