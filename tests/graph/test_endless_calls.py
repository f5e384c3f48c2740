"""Functions that call themselves whatever happens are refused; TVM would run them until the stack ends."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout
from eqsat_layout.errors import TargetError


@I.ir_module
class Circle:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Circle
        y = R.add(x, x)
        z: R.Tensor((4,), "float32") = cls.other(y)
        return z

    @R.function
    def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Circle
        y: R.Tensor((4,), "float32") = cls.main(x)
        return y


@I.ir_module
class Countdown:
    @R.function
    def main(count: R.Tensor((), "int64"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Countdown
        goes_on = R.greater(count, R.const(0, "int64"))
        if goes_on:
            less = R.subtract(count, R.const(1, "int64"))
            more = R.add(x, R.const(1.0, "float32"))
            y: R.Tensor((4,), "float32") = cls.main(less, more)
        else:
            y: R.Tensor((4,), "float32") = x
        return y


def test_a_circle_of_calls_is_refused() -> None:
    with pytest.raises(TargetError, match=r"main never returns: .*main -> other -> main"):
        eqsat_layout.compile(Circle)


def test_a_function_that_stops_calling_itself_is_compiled() -> None:
    main = relax.VirtualMachine(eqsat_layout.compile(Countdown), tvm.cpu())["main"]
    got = main(tvm.runtime.tensor(np.array(50)), tvm.runtime.tensor(np.zeros(4, "float32"))).numpy()
    np.testing.assert_array_equal(got, np.full(4, 50, "float32"))
