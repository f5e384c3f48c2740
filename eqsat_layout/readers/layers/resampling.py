"""Resizes along any axes as products with matrices, which say how much of each element each result is made of.

In: data, and for each axis where the elements of the result lie and how wide the filter is. Out: the result, in Relax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax

from eqsat_layout.readers.layers.dtypes import as_dtype

Array = np.ndarray[Any, Any]

REACH: Final = {"linear": 1, "cubic": 2}
"""How far from its middle a filter is not zero."""


@dataclass(frozen=True)
class Filter:
    """``kind``: linear or cubic, the latter with its coefficient ``a``. ``excludes``: nothing beyond the border counts;
    else the last element is what lies there."""

    kind: str
    a: float = -0.5
    excludes: bool = True

    def weights(self, places: Array, extent: int, shrink: float) -> Array:
        """A row for each of ``places``, which are in elements of the data. ``shrink``: below 1 where the filter is that
        much wider, so that all elements count."""
        reach = int(np.ceil(REACH[self.kind] / shrink)) + 1
        first = np.floor(places).astype(int)[:, None] - reach
        elements = first + np.arange(2 * reach + 2)
        found = self._at((elements - places[:, None]) * shrink)
        is_inside = (elements >= 0) & (elements < extent)
        if self.excludes:
            found = np.where(is_inside, found, 0.0)
        rows = np.zeros((len(places), extent))
        np.add.at(rows, (np.arange(len(places))[:, None], elements.clip(0, extent - 1)), found)
        return np.asarray(rows / rows.sum(1, keepdims=True))

    def _at(self, distances: Array) -> Array:
        x = np.abs(distances)
        if self.kind == "linear":
            return np.asarray((1 - x).clip(0))
        near = ((self.a + 2) * x - (self.a + 3)) * x * x + 1
        far = ((self.a * x - 5 * self.a) * x + 8 * self.a) * x - 4 * self.a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))


_WORD: Final = 15
"""Bits of the whole numbers for which torch takes weights of bytes."""


def in_steps(weights: Array) -> Array:
    """Weights as torch has them for bytes, in steps of the power of two by which the largest one fits into 16 bits."""
    bits = int(_WORD - 1 - np.floor(np.log2(weights.max())))
    while np.floor(0.5 + weights.max() * 2.0**bits) >= 2**_WORD:
        bits -= 1
    bits = min(bits, 22)
    return np.asarray(np.trunc(weights * 2.0**bits + np.copysign(0.5, weights)) / 2.0**bits)


def resampled(builder: relax.BlockBuilder, data: Any, rows: Mapping[int, Any], *, rounds: bool = True) -> Any:
    """``data`` with each axis of ``rows`` made of what the rows of its matrix, an array or a tensor of Relax, say.
    ``rounds``: whether bytes are rounded after each axis, halves up; they lose their fractions at the end else."""
    dtype, rank = str(data.ty.dtype), len(data.ty.shape)
    wide = dtype if dtype == "float64" else "float32"
    made = as_dtype(builder, data, wide)
    for axis, matrix in reversed(list(rows.items())):  # the last axis first, as others do, which shows in bytes
        order = [*(one for one in range(rank) if one != axis), axis]
        if axis != rank - 1:
            made = builder.emit(relax.op.permute_dims(made, order))
        made = builder.emit(relax.op.matmul(made, _columns(builder, matrix, wide)))
        if axis != rank - 1:
            made = builder.emit(relax.op.permute_dims(made, [order.index(one) for one in range(rank)]))
        if dtype == "uint8" and rounds:
            moved = builder.emit(relax.op.add(made, relax.const(0.5, wide)))
            made = builder.emit(relax.op.clip(builder.emit(relax.op.floor(moved)), 0, 255))
    if dtype == "uint8" and not rounds:
        made = builder.emit(relax.op.clip(made, 0, 255))
    return as_dtype(builder, made, dtype)


def _columns(builder: relax.BlockBuilder, matrix: Any, dtype: str) -> Any:
    if isinstance(matrix, np.ndarray):
        return relax.const(np.ascontiguousarray(matrix.T).astype(dtype), dtype)
    return builder.emit(relax.op.permute_dims(as_dtype(builder, matrix, dtype), [1, 0]))
