"""Arrays that a kernel looks at by a tensor map: what the driver makes of one, for the simulator.

In: an array, and extents, strides and box of a map. Out: :class:`MappedArray`, an argument of a launch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

KIND: Final = "const CUtensorMap"
"""The type of such a parameter."""
_MOST_AXES: Final = 5
_UNIT: Final = 16
_LINE: Final = 128
"""Bytes: of a row whose units are exchanged."""
_MOST_EXTENT: Final = 1 << 32
_MOST_STRIDE: Final = 1 << 40
_MOST_BOX: Final = 256


class MapWords(ctypes.Structure):
    """``TensorMap`` in ``runtime/bulk.cpp``, which finds the address of the memory by itself."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("rank", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("extents", ctypes.c_uint64 * _MOST_AXES),
        ("strides", ctypes.c_uint64 * (_MOST_AXES - 1)),
        ("box", ctypes.c_uint32 * (_MOST_AXES + 1)),
    )


@dataclass(frozen=True)
class MappedArray:
    """Axes with the fastest first; ``strides`` in bytes, of all but that; ``size``: bytes of an element. Rows of a box
    have 128 bytes, whose units of 16 are exchanged by the row."""

    array: np.ndarray[Any, np.dtype[Any]]
    size: int
    extents: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]

    @property
    def wrong(self) -> str:
        """Which of the driver's rules it breaks (CUDA driver API, cuTensorMapEncodeTiled); empty for none."""
        if not 1 <= len(self.extents) <= _MOST_AXES or {len(self.box), len(self.strides) + 1} != {len(self.extents)}:
            return "of such axes there is no tensor map"
        if self.array.ctypes.data % _UNIT or any(one % _UNIT or not 0 < one < _MOST_STRIDE for one in self.strides):
            return f"a stride, or the address, is no multiple of {_UNIT} bytes"
        if not all(1 <= one <= _MOST_EXTENT for one in self.extents):
            return "an extent that it can't have"
        if not all(1 <= one <= _MOST_BOX for one in self.box) or self.box[0] * self.size > _LINE:
            return f"a box of more than {_MOST_BOX} elements along an axis, or rows of more than {_LINE} bytes"
        last = math.fsum((n - 1) * one for n, one in zip(self.extents[1:], self.strides, strict=True))
        if last + self.extents[0] * self.size > self.array.nbytes:
            return "it reaches beyond the end of its memory"
        return ""

    def words(self) -> MapWords:
        """Without the address."""
        rank = len(self.extents)
        made = MapWords(rank=rank, size=self.size)
        made.extents[:rank], made.strides[: rank - 1], made.box[:rank] = self.extents, self.strides, self.box
        return made
