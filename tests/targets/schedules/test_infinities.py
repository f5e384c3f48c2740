"""Reductions that begin with an infinity are in vectors as all others, and give it where there is nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from targets.machines import AVX2
from tvm import te, tirx

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.schedules.infinities import begins_with_infinity, infinities_exchanged

LARGEST = float(np.finfo("float32").max)


def largest_of_rows(columns: int, begin: float) -> Any:
    reducer = te.comm_reducer(
        lambda one, other: tirx.max(one, other), lambda dtype: tirx.FloatImm(dtype, begin), name="largest"
    )
    x, k = te.placeholder((6, columns), "float32", name="x"), te.reduce_axis((0, columns))
    return te.create_prim_func([x, te.compute((6,), lambda i: reducer(x[i, k], axis=k))])


@pytest.mark.parametrize("columns", [5, 64, 70])
def test_rows_of_infinities_and_largest_numbers(columns: int) -> None:
    func = largest_of_rows(columns, -np.inf)
    rows = np.full((6, columns), -np.inf, "float32")
    rows[1, 3], rows[2, 0], rows[3, 1], rows[4] = -LARGEST, LARGEST, np.inf, -LARGEST
    out = tvm.runtime.tensor(np.zeros(6, "float32"))
    mod = tvm.IRModule({"main": schedule_primfunc(func, AVX2).with_attr("global_symbol", "main")})
    tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())["main"](tvm.runtime.tensor(rows), out)
    np.testing.assert_array_equal(out.numpy(), rows.max(1))


def test_they_are_in_vectors() -> None:
    """TVM's ``rfactor`` takes the lowest number as the beginning only: a row took twice the time."""
    assert "T.vectorized" in schedule_primfunc(largest_of_rows(64, -np.inf), AVX2).script()


def test_exchanged_twice_is_the_same() -> None:
    func = largest_of_rows(64, -np.inf)
    assert begins_with_infinity(func)
    assert not begins_with_infinity(infinities_exchanged(func))
    assert begins_with_infinity(infinities_exchanged(largest_of_rows(64, -LARGEST)))
    tvm.ir.assert_structural_equal(infinities_exchanged(infinities_exchanged(func)), func)
