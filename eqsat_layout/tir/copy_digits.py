"""Numbers that digits of iteration variables write, in blocks that only copy.

In: digits, the most significant first. Out: sums, sizes and values. Only known extents are understood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_layout.maps import Digit, Extent
from eqsat_layout.tir.affine import Term


class NotACopyError(Exception):
    """The block is no layout rewrite; never leaves this room."""


def terms_of(digits: Sequence[Digit]) -> list[Term]:
    """The number that ``digits`` write."""
    terms: list[Term] = []
    place = 1
    for axis, stride, extent in reversed(digits):
        terms.append(Term(place, axis, stride, extent))
        place *= known(extent)
    return terms


def known(extent: Extent) -> int:
    """The extent as a number; raises :class:`NotACopyError` where it is symbolic."""
    if isinstance(extent, str):
        raise NotACopyError
    return extent


def values_of_digits(digits: Sequence[Digit]) -> int:
    """How many values the number that ``digits`` write may have."""
    return math.prod(known(d.extent) for d in digits)


def number_at(digits: Sequence[Digit], values: Mapping[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The number that ``digits`` write, where the iteration variables have these values."""
    total: Any = np.array(0)
    for axis, stride, extent in digits:
        total = total * known(extent) + values[axis] // stride % known(extent)
    return np.asarray(total)
