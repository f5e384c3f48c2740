"""Results that have nothing to do with one another are scheduled one by one; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2, built
from tvm import te, tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.independent_results import independent_results


def parts_of(count: int, *, sums: bool = False, chained: bool = False) -> Any:
    """``count`` results of 4 rows each of one operand, in one function."""
    x = te.placeholder((4 * count, 37), name="x")

    def part(number: int, last: Any) -> Any:
        k = te.reduce_axis((0, 37), "k")
        if sums:
            return te.compute((4,), lambda i: te.sum(x[4 * number + i, k], axis=k), name=f"sum{number}")
        if chained and last is not None:
            return te.compute((4, 37), lambda i, j: last[i, j] + 1, name=f"next{number}")
        return te.compute((4, 37), lambda i, j: te.exp(x[4 * number + i, j]), name=f"part{number}")

    results: list[Any] = []
    for number in range(count):
        results.append(part(number, results[-1] if results else None))
    return te.create_prim_func([x, *results])


@pytest.mark.parametrize("sums", [False, True])
def test_each_has_a_schedule_and_its_numbers(sums: bool) -> None:
    """100 parts took 25 s to compile, and 50 a quarter of that."""
    func = parts_of(8, sums=sums)
    assert len(independent_results(func).parts) == 8
    done = schedule_primfunc(func, AVX2)
    assert done.attrs["tirx.is_scheduled"]
    x = np.random.default_rng(0).standard_normal((32, 37), dtype=np.float32)
    results = [tvm.runtime.tensor(np.zeros(4 if sums else (4, 37), "float32")) for _ in range(8)]
    built(tvm.IRModule({"main": done}))["main"](tvm.runtime.tensor(x), *results)
    for number, result in enumerate(results):
        rows = x[4 * number : 4 * number + 4]
        np.testing.assert_allclose(result.numpy(), rows.sum(axis=1) if sums else np.exp(rows), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("func", [parts_of(3), parts_of(8, chained=True)], ids=["few", "chained"])
def test_others_are_scheduled_together(func: tirx.PrimFunc) -> None:
    with pytest.raises(Refused):
        independent_results(func)
