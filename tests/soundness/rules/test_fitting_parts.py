"""Views, pads and crops that fit between types."""

from __future__ import annotations

import random

import pytest

from eqsat_layout.graph.borders import Border
from eqsat_layout.graph.graph import TensorType
from eqsat_layout.maps import IndexMap
from eqsat_layout.soundness.rules.fitting_parts import FittingParts, MisfitError


def test_a_number_alone_has_no_border() -> None:
    parts = FittingParts([Border((2,), ((0, 1),), 0.0)], lambda shape, rng: IndexMap.identity(shape), random.Random(0))
    with pytest.raises(MisfitError):
        parts.part("pad", [TensorType((), "float32")], None)
