"""Floats that TVM takes for wider ones: bfloat16, and those of a byte."""

from __future__ import annotations

from typing import Final

NARROW: Final = (
    "bfloat16",
    *(
        f"float8_{name}"
        for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    ),
)
"""Their dtypes. TVM computes in float32, and tells functions that it calls that they are given such."""
