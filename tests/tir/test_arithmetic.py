"""What operators of TIR do, as NumPy does it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from eqsat_layout.tir.arithmetic import BINARY


def _remainder(a: int, b: int) -> int:
    return a - math.trunc(Fraction(a, b)) * b


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        (tirx.Div, lambda a, b: math.trunc(Fraction(a, b))),
        (tirx.Mod, _remainder),
        (tirx.FloorDiv, operator.floordiv),
        (tirx.FloorMod, operator.mod),
    ],
)
def test_the_smallest_integer_is_divided_as_any_other(kind: Any, exact: Callable[[int, int], int], dtype: str) -> None:
    """-128 / 2 of int8 was 64, since it has no absolute value: right rules were called wrong."""
    info = np.iinfo(dtype)
    numbers = range(info.min, info.max + 1)
    pairs = [(a, b) for a in numbers for b in numbers if b and (a, b) != (-128, -1)]
    found = BINARY[kind](*np.array(pairs, dtype).T)
    assert found.dtype == dtype
    assert found.tolist() == [exact(a, b) for a, b in pairs]
