"""Hypothesis strategies that several test files share."""

from __future__ import annotations

from hypothesis import strategies as st

from eqsat_layout.maps import Digit, IndexMap


@st.composite
def index_maps(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> IndexMap:
    """Any split of the axes into digits, in any order, grouped in any way."""
    if shape is None:
        shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), min_size=1, max_size=4)))
    digits: list[Digit] = []
    for axis, extent in enumerate(shape):
        stride = 1
        while extent > 1:
            factor = draw(st.sampled_from([f for f in range(2, extent + 1) if extent % f == 0]))
            digits.append(Digit(axis, stride, factor))
            stride, extent = stride * factor, extent // factor
    digits = draw(st.permutations(digits))
    dims: list[list[Digit]] = [[] for _ in range(draw(st.integers(1, 5)))]
    for digit in digits:
        dims[draw(st.integers(0, len(dims) - 1))].append(digit)
    return IndexMap.make(shape, dims)
