"""Kernels give 0 for what is too small for a normal number, and leave their thread as it was."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the bit is of x86")

TINY = np.float32(1e-20)
COUNT = 1 << 18


@I.ir_module
class Squares:
    @R.function
    def main(x: R.Tensor((COUNT,), "float32")):
        with R.dataflow():
            result = R.multiply(x, x)
            R.output(result)
        return result


def squares(x: np.ndarray, **options: object) -> np.ndarray:
    session = eqsat_layout.Session(Squares, target={"kind": "llvm", "num-cores": 2}, **options)
    return session.run(None, {"x": x})[0]


def test_denormal_results_are_zero_in_every_thread() -> None:
    """Networks whose values fade took 14 times as long as OpenVINO: MobileViTV2 with random weights."""
    assert not squares(np.full(COUNT, TINY)).any()
    assert TINY * TINY > 0  # the thread's own arithmetic is as before


def test_exact_results_may_be_denormal() -> None:
    assert (squares(np.full(COUNT, TINY), approx=False) == TINY * TINY).all()


def test_operands_are_read_as_they_are() -> None:
    @I.ir_module
    class Scaled:
        @R.function
        def main(x: R.Tensor((64,), "float32")):
            with R.dataflow():
                result = R.multiply(x, R.const(1e30, "float32"))
                R.output(result)
            return result

    x = np.full(64, 1e-40, "float32")
    assert (eqsat_layout.Session(Scaled).run(None, {"x": x})[0] == x * np.float32(1e30)).all()
