"""How long work takes that computes and moves data at the same time.

In: the times of both alone. Out: that of both together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NOT_HIDDEN = 0.5  # of the shorter one: out-of-order execution and prefetch hide about half of it


def overlapped(arithmetic: float, traffic: float) -> float:
    """The time of work of which the shorter part is mostly done while the longer one runs."""
    return max(arithmetic, traffic) + _NOT_HIDDEN * min(arithmetic, traffic)


def each_overlapped(arithmetic: Any, traffic: Any) -> Any:
    """The same for arrays of times."""
    return np.maximum(arithmetic, traffic) + _NOT_HIDDEN * np.minimum(arithmetic, traffic)
