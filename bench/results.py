"""Results of networks, compared. In: what a virtual machine gives, or arrays. Out: arrays, and how far off they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def flat(value: Any) -> list[np.ndarray]:
    """The arrays of a tensor, or of tensors in tuples and lists."""
    if isinstance(value, np.ndarray):
        return [value]
    if hasattr(value, "numpy"):
        return [value.numpy()]
    return [array for item in value for array in flat(item)]


def difference(wanted: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    """Largest absolute difference; NaN if a result is missing, of another shape, or NaN itself."""
    if [a.shape for a in wanted] != [a.shape for a in got]:
        return float("nan")
    return float(np.max([np.max(np.abs(a.astype("float64") - b)) for a, b in zip(wanted, got, strict=True)]))


def magnitude(arrays: Sequence[np.ndarray]) -> float:
    """The largest element, without its sign."""
    return max(float(np.max(np.abs(array))) for array in arrays)
