"""Borders in kernels whose arithmetic is kept from the simplifier: nothing beside the operand is read."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from eqsat_layout import compile as compiled
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.targets.registry import target


@pytest.mark.parametrize("border", [(2, 0, 0, 0), (0, 0, 2, 0)])
def test_a_border_of_a_convolution_with_several_results_of_each_channel(border: tuple[int, ...]) -> None:
    """What is there and what is not was computed for each element, and one of the two taken: it read outside."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3, 6, 8), "float32"))
    weights = relax.const(np.ones((1, 1, 1, 32), "float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(op.nn.conv2d(x, weights, padding=border, groups=8, **layouts))
        builder.emit_func_output(output)
    executable = compiled(builder.finalize(), target("llvm").at_any_address)
    given = tvm.runtime.tensor(np.ones((2, 3, 6, 8), "float32"))
    assert memory_fault(executable, [("main", [given])]) == ""
