"""Numbers from a seed, the same on every machine: weights and inputs that a bundle says and does not carry.

In: a shape, a dtype and how numbers are spread. Out: an array. Nothing here needs TVM, and no generator of NumPy's is
used, whose streams may change from version to version: a number is a hash of its place (the finaliser of SplitMix64).
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_PIECE: Final = 1 << 20
_SEEDED_FROM: Final = 1024
"""Elements; what is smaller is carried."""


@dataclass(frozen=True)
class Recipe:
    """Numbers spread evenly, of a mean and a deviation, from ``low`` to ``high``; whole ones if ``whole``."""

    shape: tuple[int, ...]
    dtype: str
    seed: int
    mean: float = 0.0
    deviation: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def array(self) -> Array:
        """The numbers."""
        found = np.empty(math.prod(self.shape), numpy_type(self.dtype))
        for start in range(0, found.size, _PIECE):
            part = found[start : start + _PIECE]
            even = _even(self.seed, start, part.size) - 0.5
            numbers = np.clip(self.mean + even * (self.deviation * math.sqrt(12.0)), self.low, self.high)
            part[:] = np.rint(numbers) if self.whole else numbers.astype("float32")
        return found.reshape(self.shape)

    def damped(self, factor: float) -> Recipe:
        """The same numbers, each times ``factor``."""
        changes = {name: factor * getattr(self, name) for name in ("mean", "deviation", "low", "high")}
        return replace(self, **changes)

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Carried:
    """Bytes as they are."""

    data: bytes

    def array(self) -> Array:
        """The bytes."""
        return np.frombuffer(self.data, "uint8")

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        return {"carried": base64.b64encode(zlib.compress(self.data)).decode()}


def from_data(data: Mapping[str, Any]) -> Recipe | Carried:
    """What ``to_data`` gave."""
    if "carried" in data:
        return Carried(zlib.decompress(base64.b64decode(data["carried"])))
    return Recipe(**{**data, "shape": tuple(data["shape"])})


def recipe_like(array: Array, seed: int) -> Recipe | None:
    """Other numbers that are spread as those of ``array``; ``None`` for few of them, and for what is no float."""
    is_float = array.dtype.name in ("float16", "float32", "float64", "bfloat16")
    if array.size < _SEEDED_FROM or not is_float:
        return None
    wide = array.astype("float64")
    if not np.isfinite(wide).all() or wide.min() == wide.max():
        return None
    mean, deviation, low, high = (float(one) for one in (wide.mean(), wide.std(), wide.min(), wide.max()))
    return Recipe(array.shape, array.dtype.name, seed, mean, deviation, low, high)


def numpy_type(dtype: str) -> Any:
    """:class:`ImportError` for bfloat16 where ml_dtypes is not."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def relative_error(got: Sequence[Array], expected: Sequence[Array]) -> float:
    """In the norm, the largest of all results; infinite where a number is missing or none."""
    return max(_error(a, b) for a, b in zip(got, expected, strict=True))


def _error(got: Array, expected: Array) -> float:
    wide, reference = got.astype("float64"), expected.astype("float64")
    if wide.shape != reference.shape or not np.isfinite(wide).all():
        return math.inf
    return float(np.linalg.norm(wide - reference) / max(float(np.linalg.norm(reference)), 1e-30))


def _even(seed: int, start: int, count: int) -> npt.NDArray[np.float64]:
    """From 0 to 1."""
    mixed = np.arange(start, start + count, dtype=np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15) % 2**64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
