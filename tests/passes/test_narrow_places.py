"""Places that the data say have 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from eqsat_layout.passes.narrow_places import narrow_places
from eqsat_layout.soundness.programs.check import unscheduled_library
from eqsat_layout.targets.cuda.lowering import lowered
from eqsat_layout.targets.gpu.kernels.functions import with_work_items

COUNT, EXTENT = 64, 9
SM90 = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
PLACES = [np.nan, np.inf, -np.inf, 0, -0.0, -0.5, -1, -1.5, 3, 7.5, 8, 8.5, 9, 40000, -40000, 65504]


def sampled(dtype: str) -> Any:
    """Zero where the place is outside, and one from the nearest place."""
    x, at = (te.placeholder((tirx.IntImm("int64", n),), dtype, name) for n, name in ((EXTENT, "x"), (COUNT, "at")))

    def element(i: Any) -> Any:
        place = tirx.Cast("int64", te.floor(at[i])) + 1
        inside = tirx.all(place >= 0, tirx.IntImm("int64", EXTENT) > place)
        nearest = tirx.max(tirx.min(tirx.Cast("int64", at[i]), EXTENT - 1), 0)
        return tirx.if_then_else(inside, x[place], tirx.const(0.0, dtype)) + x[nearest]

    return te.create_prim_func([x, at, te.compute((tirx.IntImm("int64", COUNT),), element, "y")])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_places_are_those_that_they_were(dtype: str) -> None:
    before = sampled(dtype).without_attr("global_symbol")
    after = narrow_places()(tvm.IRModule({"main": before}))["main"]
    inputs = [np.arange(1, EXTENT + 1).astype(dtype), np.resize(np.array(PLACES), COUNT).astype(dtype)]
    if dtype == "float32":
        inputs[1][:4] = [1e9, -1e9, 3e30, -3e30]
    found = []
    for func in (before, after):
        arrays = [*map(tvm.runtime.tensor, inputs), tvm.runtime.tensor(np.zeros(COUNT, dtype))]
        unscheduled_library({"f": func})["f"](*arrays)
        found.append(arrays[-1].numpy())
    ordinary = abs(inputs[1].astype("float64")) < 1e5  # what others are cast to, LLVM leaves open
    np.testing.assert_array_equal(found[1][ordinary], found[0][ordinary])
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_sampled_place_has_32_bits(dtype: str) -> None:
    """Of a cast nothing is known: all indices of the kernel had 64 bits."""
    (source,) = lowered({"f": with_work_items(sampled(dtype))}, SM90).sources.values()
    assert "int64_t)" not in source


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_a_gathered_place_has_32_bits(index: str) -> None:
    x = te.placeholder((tirx.IntImm("int64", 64), tirx.IntImm("int64", 9)), "float32", "x")
    at = te.placeholder((tirx.IntImm("int64", 64),), "int32", "at")
    gathered = te.compute(at.shape, lambda i: x[i, at[i] if index == "int32" else tirx.Cast(index, at[i])], "y")
    func = with_work_items(te.create_prim_func([x, at, gathered]))
    (source,) = lowered({"f": func}, SM90).sources.values()
    assert "int64_t)" not in source
