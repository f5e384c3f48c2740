"""Fusing on the way to a build: what the outside calls stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

import eqsat_layout


def grouped_addition() -> Any:
    """A function of a group that was fused before, under a public name, and a caller of it."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((10, 20), "float32")

    def addition(*params: Any) -> Any:
        return builder.emit_output(builder.call_te(lambda x, y: tvm.topi.add(x, y), *params))

    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("fused_add", [x, y], attrs={"Primitive": True}):
        with builder.dataflow():
            output = addition(x, y)
        builder.emit_func_output(output)
    group = builder.get().get_global_var("fused_add")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            output = builder.emit_output(relax.Call(group, [x, y]))
        builder.emit_func_output(output)
    return builder.get()


def test_a_public_group_can_still_be_called() -> None:
    """TVM's test_fuse_tir: ``compile`` made a PrimFunc of it, and the virtual machine did not know its name."""
    machine = relax.VirtualMachine(eqsat_layout.compile(grouped_addition()), tvm.cpu())
    x, y = (np.full((10, 20), value, "float32") for value in (2.0, 3.0))
    for name in ("main", "fused_add"):
        result = machine[name](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
        np.testing.assert_array_equal(result, x + y)
