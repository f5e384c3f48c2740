"""What runs on the accumulators of a reduction reads all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, built
from tvm import te, tirx

from eqsat_layout.targets.cpu.schedule import schedule_primfunc

WIDTH, STEPS = 16, 3
PLACES: dict[str, Callable[[Any], Any]] = {
    "every other": lambda x: x * 2,
    "moved": lambda x: x - 3,
    "turned round": lambda x: WIDTH - 1 - x,
}


@pytest.mark.parametrize("name", PLACES)
def test_elements_elsewhere_among_zeros(name: str) -> None:
    """Every other sum, and zeros after these: taken for all sums in another order, which TVM failed on."""
    place = PLACES[name]
    data, step = te.placeholder((4, STEPS, WIDTH), name="data"), te.reduce_axis((0, STEPS))
    sums = te.compute((4, WIDTH), lambda y, x: te.sum(data[y, step, x], step), name="sums")

    def element(y: Any, x: Any) -> Any:
        return tirx.if_then_else(tirx.all(place(x) >= 0, place(x) < WIDTH), sums[y, place(x)], 0.0)

    result = te.compute((4, WIDTH), element, name="result")
    func = schedule_primfunc(te.create_prim_func([data, result], index_dtype_override="int64"), AVX2)
    given = np.random.default_rng(0).standard_normal((4, STEPS, WIDTH)).astype("float32")
    found = tvm.runtime.tensor(np.full((4, WIDTH), np.nan, "float32"))
    built(tvm.IRModule({"k": func.with_attr("global_symbol", "k")}))["k"](tvm.runtime.tensor(given), found)
    inside = {x: place(x) for x in range(WIDTH) if 0 <= place(x) < WIDTH}
    expected = np.zeros((4, WIDTH), "float32")
    expected[:, list(inside)] = given.sum(1)[:, list(inside.values())]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
