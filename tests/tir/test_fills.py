"""What ops make of borders that hold a number."""

from __future__ import annotations

from tir.helpers import understood
from tvm import te

from eqsat_layout.maps import UNDEF
from eqsat_layout.tir.fills import pointwise_fill


def first_four(extent: int) -> te.PrimFunc:
    x = te.placeholder((extent,), name="x")
    return te.create_prim_func([x, te.compute((4,), lambda i: x[i] * 2.0, name="y")])


def test_the_border_of_a_part_is_another() -> None:
    """The first elements of a longer tensor were taken to have its border: a border of another shape."""
    assert pointwise_fill(understood(first_four(4)), 0, 1.0) == 2.0
    assert pointwise_fill(understood(first_four(6)), 0, 1.0) is UNDEF
