"""Running sums along an axis that is not the last are vectors, and bit for bit what TVM's loops give."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target

CASES = {
    "rows": ((33, 64), 0, "float32"),
    "lanes left over": ((9, 71), 0, "float32"),
    "few lanes": ((3, 20, 7), 1, "float32"),
    "several rows": ((3, 5, 4, 50), 1, "float64"),
    "whole numbers": ((4, 40), 0, "int32"),
    "bytes": ((17, 3, 90), 1, "int8"),
    "one step": ((1, 40), 0, "float32"),
}


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("op", [topi.cumsum, topi.cumprod])
@pytest.mark.parametrize("case", CASES)
def test_neighbours_run_together_with_the_same_bits(case, op, exclusive):
    shape, axis, dtype = CASES[case]
    func = _running(op, shape, axis, dtype, exclusive)
    scheduled = schedule_primfunc(func, machine_of(normalize_target()))
    assert "T.vectorized" in scheduled.script()
    x = _numbers(shape, dtype)
    np.testing.assert_array_equal(_bytes(_run(scheduled, x)), _bytes(_run(func, x)))


def test_a_running_sum_along_the_last_axis_stays_as_it_was():
    func = _running(topi.cumsum, (4, 30), 1, "float32", False)
    assert "T.vectorized" not in schedule_primfunc(func, machine_of(normalize_target())).script()


def _running(op, shape, axis, dtype, exclusive):
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, op(x, axis=axis, exclusive=exclusive)], index_dtype_override="int64")


def _numbers(shape, dtype):
    random = np.random.default_rng(0)
    if dtype.startswith("int"):
        return random.integers(-100, 100, shape).astype(dtype)
    x = random.normal(size=shape).astype(dtype)
    x.flat[[2, 7, 11, 13]] = np.nan, np.inf, -0.0, 1e-42
    return x


def _run(func, x):
    kernel = tvm.tirx.build(tvm.IRModule({"main": func}), target=normalize_target())["main"]
    result = tvm.runtime.tensor(np.zeros_like(x))
    kernel(tvm.runtime.tensor(x), result)
    return result.numpy()


def _bytes(x):
    """With their signs; a NaN is as good as another."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x).view(np.uint8) if x.dtype.kind == "f" else x
