"""Indices that were floats, kept between bounds: 32 bits on devices, and the same elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import program
from targets.opencl.running import compiled, results
from tvm import te, tirx
from tvm.relax import op

LARGE = np.array([1e12, -1e12, np.inf, -np.inf, 2.0**31, -(2.0**31), 2.0**30, 3.7, -3.7, 0.99, 7.5, 9.0], "float32")


@pytest.mark.parametrize("added", [0, 1, -2])
@pytest.mark.parametrize("is_most_first", [True, False])
def test_floats_beyond_32_bits_are_as_they_were(added: int, is_most_first: bool) -> None:
    def looked_up(x: Any, f: Any) -> Any:
        def at(i: Any) -> Any:
            place = tirx.Cast("int64", f[i]) + tirx.IntImm("int64", added)
            bounds = [tirx.IntImm("int64", 8), tirx.IntImm("int64", 1)]
            if is_most_first:
                return x[tirx.Max(tirx.Min(place, bounds[0]), bounds[1])]
            return x[tirx.Min(bounds[0], tirx.Max(bounds[1], place))]

        return te.compute((len(LARGE),), at, "looked_up")

    made = compiled(program(lambda builder, x, f: builder.emit_te(looked_up, x, f), (9,), LARGE.shape))
    assert not any("long" in source for source in made.sources.values())
    x = np.arange(9, dtype="float32")
    places = np.clip(np.trunc(LARGE.astype("float64")) + added, 1, 8)
    np.testing.assert_array_equal(results(made, [x, LARGE])[0], places)


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest_neighbor"])
def test_resizes_have_indices_of_32_bits(method: str) -> None:
    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.image.resize2d(x, (17, 23), layout="NCHW", method=method))

    made = compiled(program(body, (1, 2, 9, 11)))
    assert not any("long" in source for source in made.sources.values())
