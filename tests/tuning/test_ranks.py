"""Ranks of two columns, compared."""

from __future__ import annotations

import pytest

from eqsat_layout.tuning.ranks import rank_correlation


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)], 1.0),
        ([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0),
        ([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)], 0.866),
        ([(1.0, 1.0), (1.0, 2.0)], None),
        ([], None),
    ],
)
def test_ranks_are_compared(pairs: list[tuple[float, float]], wanted: float | None) -> None:
    found = rank_correlation(pairs)
    assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-3))
