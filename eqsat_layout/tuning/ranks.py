"""How alike two columns of numbers rank what they are about.

In: pairs of numbers, such as modelled and measured seconds. Out: Spearman's rank correlation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation, equal values having the mean of their ranks; None for less than two ranks."""
    if len(pairs) < 2:
        return None
    ranks = [_mean_ranks(column) for column in zip(*pairs, strict=True)]
    if any(len(set(column)) < 2 for column in ranks):
        return None
    matrix: Any = np.corrcoef(ranks)
    return float(matrix[0, 1])


def _mean_ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, v) + bisect_right(ordered, v) - 1) / 2 for v in values]
