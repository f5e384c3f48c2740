"""Kernels that change what they read do it once for every element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from targets.cpu.byte_kernels import HERE, ran
from tvm.script import tirx as T

from eqsat_layout.targets.cpu.schedule import schedule_primfunc


def product_added(rows: int, columns: int) -> Any:
    @T.prim_func(s_tir=True)
    def added(
        x: T.Buffer((rows, 64), "uint8"), w: T.Buffer((64, columns), "int8"), total: T.Buffer((rows, columns), "int32")
    ):
        own = T.sblock_alloc_buffer((rows, columns), "int32")
        for i, j, k in T.grid(rows, columns, 64):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    own[vi, vj] = 0
                own[vi, vj] = own[vi, vj] + T.Cast("int32", x[vi, vk]) * T.Cast("int32", w[vk, vj])
        for i, j in T.grid(rows, columns):
            with T.sblock("total"):
                vi, vj = T.axis.remap("SS", [i, j])
                total[vi, vj] = total[vi, vj] + own[vi, vj]

    return added


@pytest.mark.parametrize(("rows", "columns"), [(49, 48), (200, 40), (16, 32)])
def test_a_product_is_added_once(rows: int, columns: int) -> None:
    """The last tile of rows, and the last vector of columns, overlapped those before and added twice."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (rows, 64)).astype("uint8"), rng.integers(-128, 128, (64, columns)).astype("int8")
    total = rng.integers(-9, 9, (rows, columns)).astype("int32")
    expected = total + x.astype("int32") @ w.astype("int32")
    np.testing.assert_array_equal(
        ran(schedule_primfunc(product_added(rows, columns), HERE.machine), [x, w, total]), expected
    )
