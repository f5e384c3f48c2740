"""Where the decisions of a random program come from.

In: a seed, a recorded sequence, or a function that draws. Out: :class:`Choices`, which records what was drawn, so that
a program can be made again, and smaller by making its record smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Where all decisions come from: ``draw(n)`` gives a number in [0, n). Keeps a record, with spans of it that may be
    left out as a whole, so that a program can be made smaller by making its record smaller."""

    def __init__(self, draw: Callable[[int], int]):
        self._draw = draw
        self.record: list[int] = []
        self.spans: list[tuple[int, int]] = []

    @staticmethod
    def of_seed(seed: int) -> Choices:
        """As a random generator of that seed decides."""
        return Choices(random.Random(seed).randrange)

    @staticmethod
    def of_record(record: Sequence[int]) -> Choices:
        """As recorded; 0 from where the record ends."""
        rest = iter(record)
        return Choices(lambda n: min(next(rest, 0), n - 1))

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        if n <= 1:
            return 0
        self.record.append(self._draw(n))
        return self.record[-1]

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in so many cases out of a hundred."""
        return self.below(100) >= 100 - percent

    def choice(self, items: Sequence[T]) -> T:
        """One of ``items``; the first is the simplest."""
        return items[self.below(len(items))]

    def weighted(self, items: dict[T, int]) -> T:
        """One of the keys, as often as its number says."""
        number = self.below(sum(items.values()))
        for item, weight in items.items():
            number -= weight
            if number < 0:
                return item
        raise AssertionError("weights are positive")

    def some(self, items: Sequence[T], percent: int) -> list[T]:
        """Each of ``items`` in so many cases out of a hundred."""
        return [item for item in items if self.chance(percent)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """``items`` in any order; as they are if all choices are 0."""
        rest, result = list(items), []
        while rest:
            result.append(rest.pop(self.below(len(rest))))
        return result

    @contextmanager
    def span(self) -> Iterator[None]:
        """What is drawn inside belongs together."""
        start = len(self.record)
        try:
            yield
        finally:
            self.spans.append((start, len(self.record)))
