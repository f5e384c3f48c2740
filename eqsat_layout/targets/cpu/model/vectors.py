"""How many elements of an axis, or of a run of memory, vectors take.

In: extents and the elements of a register. Out: the lanes of vectors that divide them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat_layout.targets.schedules.stages import divisors


def lanes_of_run(extents: Sequence[int], width: int) -> int:
    """Elements of a vector over axes that are one run.

    The innermost axis and the vector divide one another or have no common factor: else TVM may not see that a vector
    is one piece of memory (32 elements along 64 x 56 x 56).
    """
    return _lanes([d for d in divisors(math.prod(extents), 4 * width) if math.gcd(d, extents[-1]) in (1, d)], width)


def vector_lanes(extent: int, width: int) -> int:
    """Elements of a vector that divides ``extent``: one, two or four registers, or most of one; else 1.

    Not three: LLVM keeps partial results of 48 lanes on the stack, and a sum took five times as long.
    """
    return _lanes(divisors(extent, 4 * width), width)


def _lanes(choices: Sequence[int], width: int) -> int:
    whole = [d for d in choices if d in (width, 2 * width, 4 * width)]
    if whole:
        return max(whole)
    part = [d for d in choices if d <= width <= 2 * d]
    return max(part, key=lambda d: (d / d.bit_count(), d), default=1)  # LLVM cuts 10 lanes in 8 and 2
