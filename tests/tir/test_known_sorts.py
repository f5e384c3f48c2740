"""Kernels that call TVM's library sort what it sorts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import eqsat_layout
from eqsat_layout.soundness.memory.kernels import memory_fault
from eqsat_layout.targets.registry import target

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "uint8": "uint8", "bool": "bool"}


def module(shape, dtype, make):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(make(x)))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_median_whose_kernel_calls_the_library(dtype: str) -> None:
    """TVM told its library that bfloat16 are float32: it read beyond the operand, and the median was another element.
    Bytes and truth values it refused as the program ran."""
    mod = relax.transform.LegalizeOps()(module((2, 5), dtype, lambda x: op.median(x, axis=[1])))
    executable = eqsat_layout.compile(mod, target("llvm").at_any_address)
    x = np.array([[3, 1, 0, 2, 7], [9, 5, 4, 4, 1]]).astype(DTYPES[dtype])
    values, places = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
    expected = np.argsort(x, 1, kind="stable")[:, 2:3]
    np.testing.assert_array_equal(places.numpy(), expected[:, 0])
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1)[:, 0])
    assert memory_fault(executable, [("main", [tvm.runtime.tensor(x)])]) == ""


def test_a_sort_of_so_many_bytes_as_there_are() -> None:
    """Where that is not known it is left to TVM's library, which refused bytes."""
    mod = module((tvm.tirx.Var("n", "int64"),), "uint8", op.sort)
    machine = relax.VirtualMachine(eqsat_layout.compile(mod), tvm.cpu())
    x = np.array([3, 200, 0, 2], "uint8")
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), np.sort(x))
