"""Numbers of 32 bits as sums of three of 16.

In: float32 expressions. Out: their parts, which are bfloat16: the first eight bits of the number, the next eight, and
the last eight.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import tirx

from eqsat_layout.targets.schedules.lets import named

PARTS: Final = 3
PAIRS: Final = ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0))
"""Parts of the first and the second operand whose products count: one changes from each to the next, but once.

``x == x0 + x1 + x2`` holds exactly where the last part is no smaller than 2^-126. The three pairs that are left out are
no more than 2^-23 of the product together, twice what rounding a product to float32 may cost, and mostly far less. So a
sum of such products is as near as one in float32. (G. Henry, P. T. P. Tang, A. Heinecke: Leveraging the bfloat16
Artificial Intelligence Datatype For Higher-Precision Computations, ARITH 2019.)

Not the same as float32 are results of infinite operands and of such beyond 3.38e38, which are NaN, and operands below
2^-102, of which the last bits may be lost.
"""

_HALF: Final = 0x8000
_HIGH: Final = 0xFFFF0000


def part(x: Any, number: int) -> Any:
    """The bits of a part of ``x``, as uint32 with the upper half zero."""
    return _part(x, number, is_last=number == PARTS - 1)


def _part(x: Any, number: int, *, is_last: bool) -> Any:
    def of_named(x: Any) -> Any:
        bits = tirx.reinterpret("uint32", x)
        if number:
            return _part(x - tirx.reinterpret("float32", _rounded(bits)), number - 1, is_last=is_last)
        return (bits if is_last else _rounded(bits)) >> _u(16)

    return named(x, of_named)


def _rounded(bits: Any) -> Any:
    """To the next eight bits of the fraction: halves away from zero."""
    return (bits + _u(_HALF)) & _u(_HIGH)


def _u(value: int) -> Any:
    return tirx.IntImm("uint32", value)
