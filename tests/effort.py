"""How much of what takes a build each is tried: some examples and cases, or all in ``make test-long``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

LONG: Final = "EQSAT_LAYOUT_LONG_TESTS"
IS_LONG: Final = bool(os.environ.get(LONG))


def tries(count: int) -> int:
    """Of ``count`` examples, those that this run tries: at least four."""
    return count if IS_LONG else max(min(count, 4), count // 3)


def some(cases: Iterable[T], every: int = 2) -> list[T]:
    """Of cases in which other tests try the same code in another way: each so manieth."""
    return list(cases)[:: 1 if IS_LONG else every]


def but_for(cases: Iterable[T], left_out: Sequence[T]) -> list[T]:
    """Without those in which nothing is wrong that is not wrong in one of the others."""
    return [case for case in cases if IS_LONG or case not in left_out]
