"""Shapes that are known are numbers."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout
from eqsat_layout.passes.known_shapes import write_known_shapes


@I.ir_module
class LastRow:
    """As ONNX's exporter takes row -1 of a tensor."""

    @R.function
    def main(x: R.Tensor((5, 3), "float32")) -> R.Tensor((3,), "float32"):
        with R.dataflow():
            sizes = R.shape_to_tensor(R.shape_of(x))
            rows = R.take(sizes, R.const(0, "int64"), axis=0)
            row = R.add(rows, R.const(-1, "int64"))
            y = R.take(x, row, axis=0, mode="fast")
            R.output(y)
        return y


@I.ir_module
class AnySize:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor((2,), "int64"):
        with R.dataflow():
            sizes = R.shape_to_tensor(R.shape_of(x))
            R.output(sizes)
        return sizes


def test_indices_made_of_known_shapes_are_computed_ahead() -> None:
    assert "shape_to_tensor" not in write_known_shapes(LastRow).script()
    x = np.arange(15, dtype="float32").reshape(5, 3)
    machine = tvm.relax.VirtualMachine(eqsat_layout.compile(LastRow), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), x[-1])


def test_others_stay() -> None:
    assert write_known_shapes(AnySize) is AnySize
