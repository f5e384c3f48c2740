"""Cuts of a sequence: the best of all, whichever of them are settled early."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from eqsat_layout.targets.cpu.chains.best_cuts import BestCuts

LONGEST = 3
Gains = dict[tuple[int, int], float]


def total(cuts: list[int], gains: Gains) -> float:
    return sum(gains.get(window, 0.0) for window in pairwise(cuts))


@st.composite
def sequences(draw: st.DrawFn) -> tuple[int, Gains]:
    length = draw(st.integers(0, 8))
    windows = [(first, end) for end in range(length + 1) for first in range(max(0, end - LONGEST), end - 1)]
    return length, {window: float(draw(st.integers(-1, 4))) for window in windows}


@given(sequences())
def test_no_cuts_gain_more_than_those_that_are_given_one_by_one(case: tuple[int, Gains]) -> None:
    length, gains = case
    best, found = BestCuts(LONGEST), list[tuple[int, int]]()
    for end in range(1, length + 1):
        best.add({first: gain for (first, last), gain in gains.items() if last == end})
        found += best.settled()
    found += best.rest()
    cuts = [0, *(end for _, end in found)]
    assert list(pairwise(cuts)) == found
    assert cuts[-1] == length
    inner = (list(range(1, length)) if length > 1 else [],)
    choices = (
        [0, *(cut for cut, is_cut in zip(*inner, picked, strict=True) if is_cut), length]
        for picked in product((False, True), repeat=len(inner[0]))
    )
    allowed = [one for one in choices if all(end - first <= LONGEST for first, end in pairwise(one))]
    most = max((sum(max(0.0, gains.get(w, 0.0)) for w in pairwise(one)) for one in allowed), default=0.0)
    assert total(cuts, gains) == most


def test_what_no_window_crosses_is_settled_at_once() -> None:
    best = BestCuts(2)
    best.add({})
    best.add({0: 1.0})
    assert best.settled() == []  # a window from the second element on may be better
    best.add({1: 0.0})
    best.add({2: 0.0})
    assert best.settled() == [(0, 2), (2, 3)]
    assert best.rest() == [(3, 4)]
