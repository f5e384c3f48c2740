"""Numbers that the text of a kernel would not say, or in too few digits: TVM writes seven of them in OpenCL C, and
fifteen places after the dot for doubles in CUDA C++. OpenCL's ``NAN`` may have any bits, and bfloat16 no infinity.

In: a PrimFunc as the code generator gets it. Out: the same with the bits of such numbers in their place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from tvm import tirx

from eqsat_layout.tir.structural import body_pass

_PACKED: Final = {"float32": ("f", "i", "int32"), "float64": ("d", "q", "int64")}
"""By type ``struct``'s letters for it and for integers of its size, and their type."""
_NARROW: Final = "bfloat16"


def exact_floats(made_of_bits: Mapping[str, str], printed: Callable[[float], str]) -> Any:
    """A pass. ``made_of_bits``: by type the function of the language that makes a float of an integer's bits;
    ``printed``: how TVM writes a number."""

    def exact(number: Any) -> Any:
        dtype, value = str(number.ty.dtype), float(number.value)
        if dtype == _NARROW and not math.isfinite(value):
            return tirx.Cast(dtype, exact(tirx.FloatImm("float32", value)))
        if dtype not in made_of_bits or math.isinf(value):
            return number
        of_float, of_integer, integer = _PACKED[dtype]
        bits = struct.pack(of_float, value)
        if not math.isnan(value) and struct.pack(of_float, float(printed(value))) == bits:
            return number
        (whole,) = struct.unpack(of_integer, bits)
        return tirx.call_pure_extern(dtype, made_of_bits[dtype], tirx.IntImm(integer, whole))

    return body_pass("ExactFloats", (tirx.FloatImm, exact))
