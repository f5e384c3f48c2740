"""Which calls add up narrow floats, and along which axes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from eqsat_layout.graph.graph import TensorType
from eqsat_layout.soundness.rules.narrow_sums import adds_many, adds_narrowly
from eqsat_layout.soundness.rules.schema import drawn

SUMS: dict[str, tuple[str, tuple[int, ...], str, dict[str, Any], bool, bool]] = {
    "running": ("relax.cumsum", (1, 2112), "float16", {"axis": 1, "dtype": "float16"}, True, True),
    "running, bfloat16": ("relax.cumsum", (320,), "bfloat16", {"axis": 0, "dtype": "bfloat16"}, True, True),
    "running, wide": ("relax.cumsum", (320,), "float16", {"axis": 0, "dtype": "float32"}, False, False),
    "along another axis": ("relax.sum", (2112, 1), "float16", {"axis": [1]}, True, False),
    "mean": ("relax.mean", (2112, 1), "bfloat16", {"axis": [0]}, True, True),
    "short": ("relax.sum", (4, 4), "float16", {"axis": [0]}, True, False),
    "largest": ("relax.max", (2112, 1), "float16", {"axis": [0]}, False, False),
}
"""Calls, whether they add narrow floats, and whether many."""


@pytest.mark.parametrize("case", SUMS)
def test_sums_are_read_off_the_tir(case: str) -> None:
    """Long running sums of int8 and bfloat16, and of float16 along any but an only axis, took too long for models."""
    name, shape, dtype, attributes, narrow, many = SUMS[case]
    call = drawn(name, [TensorType(shape, dtype)], random.Random(0), exact=True, kept=attributes)
    assert call.values["axis"] == attributes["axis"]
    assert (adds_narrowly(call), adds_many(call)) == (narrow, many)
