"""Rows are divided by one number as products with its reciprocal; other divisions stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from targets.machines import AVX2
from tvm import te, tirx

from eqsat_layout.targets.cpu.lowering import pipeline_name
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.tir.structural import nodes_of

ROWS, COLUMNS = 6, 64


def divided(of_rows: bool) -> Any:
    x = te.placeholder((ROWS, COLUMNS), "float32", name="x")
    y = te.placeholder((ROWS,) if of_rows else (COLUMNS,), "float32", name="y")
    z = te.compute(x.shape, lambda i, j: x[i, j] / y[i if of_rows else j])
    return schedule_primfunc(te.create_prim_func([x, y, z]), AVX2)


def ran(func: Any, x: Any, y: Any) -> Any:
    out = tvm.runtime.tensor(np.zeros((ROWS, COLUMNS), "float32"))
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tirx.build(mod, target={"kind": "llvm"}, pipeline=pipeline_name())
    built["main"](*map(tvm.runtime.tensor, (x, y)), out)
    return out.numpy()


def test_the_reciprocal_is_of_one_element() -> None:
    (division,) = nodes_of(divided(of_rows=True).body, tirx.Div)
    assert float(division.a) == 1
    (division,) = nodes_of(divided(of_rows=False).body, tirx.Div)
    assert isinstance(division.a, tvm.ir.TensorLoad)


def test_results_differ_in_the_last_bit_at_most() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)).astype("float32")
    x[:, :4] = 0, -0.0, np.inf, np.nan
    y = np.array([3, -7e-30, 5e30, np.inf, 0, np.nan], "float32")
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(ran(divided(of_rows=True), x, y), x / y[:, None], rtol=2.4e-7)
