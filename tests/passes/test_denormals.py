"""Constants have no denormal numbers where results need not be exact."""

from __future__ import annotations

import numpy as np
import tvm
from programs import program
from tvm import relax
from tvm.relax import op as R

import eqsat_layout
from eqsat_layout.passes.denormals import without_denormals
from eqsat_layout.tir.structural import nodes_of

TINY = float(np.finfo("float32").tiny)
GIVEN = np.array([0.0, -0.0, 1e-40, -1e-45, TINY, -TINY, TINY * (1 - 2**-23), np.inf, np.nan, 1.0], "float32")
TAME = np.array([0.0, -0.0, 0.0, -0.0, TINY, -TINY, 0.0, np.inf, np.nan, 1.0], "float32")


def test_they_become_zeros_and_nothing_else_changes() -> None:
    mod = program(lambda b, x: b.emit(R.multiply(x, relax.const(GIVEN))), (10,))
    tame = without_denormals(mod)
    (constant,) = nodes_of(tame["main"], tvm.ir.GenericConst)
    np.testing.assert_array_equal(constant.value.numpy().view("uint32"), TAME.view("uint32"))
    assert without_denormals(tame) is tame


def test_exact_results_keep_them() -> None:
    mod = program(lambda b, x: b.emit(R.multiply(x, relax.const(GIVEN))), (10,))
    huge = np.full(10, 2.0**100, "float32")
    for approx, expected in ((False, GIVEN * huge), (True, TAME * huge)):
        run = relax.VirtualMachine(eqsat_layout.compile(mod, approx=approx), tvm.cpu())["main"]
        np.testing.assert_array_equal(run(tvm.runtime.tensor(huge)).numpy(), expected)
