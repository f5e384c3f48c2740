"""Integers of 8 and 16 bits wrap around in TIR; C computes in ``int`` and wraps what is stored.

In: a PrimFunc as the code generator gets it. Out: the same with conversions where a value may have more bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import body_pass

_GROWING: Final = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.BitwiseNot, tirx.LShift)


def narrow_integers(conversions: Mapping[str, str]) -> Any:
    """A pass; ``conversions``: what is written in front of a value in parentheses, by dtype.

    Vectors are left: their lanes have their type in OpenCL C, and are stored one by one in CUDA C++.
    """

    def wrapped(value: Any) -> Any:
        name = conversions.get(str(value.ty.dtype)) if isinstance(value.ty, ir.PrimType) else None
        return value if name is None else tirx.call_pure_extern(value.ty, name, value)

    return body_pass("NarrowIntegers", (_GROWING, wrapped))
