"""Views, pads and crops that fit between types."""

from __future__ import annotations

import random

import pytest

from eqsat_layout.graph.borders import Border
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import Digit, IndexMap
from eqsat_layout.soundness.rules.fitting_parts import FittingParts, MisfitError


def test_a_number_alone_has_no_border() -> None:
    parts = FittingParts([Border((2,), ((0, 1),), 0.0)], lambda shape, rng: IndexMap.identity(shape), random.Random(0))
    with pytest.raises(MisfitError):
        parts.part("pad", [TensorType((), "float32")], None)


def test_views_that_keep_a_shape_are_not_all_idle() -> None:
    """Of the vocabulary's only those fitted that leave all in its place: with many a seed all views commuted."""
    shape = (2, 2, 2)

    def turned(shape: tuple[int, ...], rng: random.Random) -> IndexMap:
        order = rng.sample(range(len(shape)), len(shape))
        return IndexMap.make(shape, [[Digit(axis, 1, shape[axis])] for axis in order])

    parts = FittingParts([IndexMap.identity(shape)], turned, random.Random(0))
    ty = TensorType(shape, "float32")
    found = {str(parts.part("view", [ty], ty)) for _ in range(40)}
    assert len(found) == 4
